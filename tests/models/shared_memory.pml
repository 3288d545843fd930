// SPDX-License-Identifier: Apache-2.0
// A Spin model of the protocol of module shared_memory between two ranks; Spin explores every order of the steps. Each
// rank sends the other a large message (lent) and a small one, and waits for both directions. At any moment, either
// rank may give up. It may die between any two accesses to shared memory, and it may refuse to read the other's memory.
// After a call has returned, its buffer holds other bytes, and a new engine gets the old one's address. run.py turns on
// the defects, one at a time: each breaks an invariant, and the exploration finds it. docs/rooms/shared_memory.md lists
// the invariants.
//
// A step is one access to shared memory with its consequences inside the rank. Rings hold frames, not bytes: one frame
// fits, and a little space is left. There is space for one answer. Bells are flags: a rank clears its own bell before
// it looks, and sleeps until another rank sets it. A sleep has no timer, except one that detects a death: a lost bell
// is a deadlock.

#define NONE 0
// Frames. TAKEN and REFUSED travel in the ring only with DEFECT_ANSWERS_IN_RING.
#define LENT 1
#define SMALL 2
#define AGAIN 3
#define TAKEN 4
#define REFUSED 5
// A rank's membership.
#define JOINED 1
#define LEFT 2
// Bytes in a buffer: the message, or later data of its owner.
#define MESSAGE 1
#define OTHER 2
// How a call ended.
#define SUCCESS 1
#define GAVE_UP 2  // the rank's own deadline or cancellation
#define MISSING 3  // the peer died or left
#define TOLD 4     // the reason is another rank's

// --- shared memory; it outlives every process ---
chan ring[2] = [1] of { byte };  // from rank r to the other
bit writer_waits[2];             // of ring r
byte answers[2], answered[2];    // from rank r to the other: the answer, and their number
bit rung[2];                     // bells
byte state[2] = JOINED;
byte poisoned_by;                // rank + 1
bit note[2];                     // the rank's reason is written

// --- a process's memory, which the other may read ---
byte buffer[2] = MESSAGE;
byte guard[2] = 1;               // the value at the published address; 1 is the first engine's
bit dead[2];

// --- local knowledge of a rank ---
chan sends[2] = [5] of { byte };
bit waits_taken[2], waits_small_out[2], waits_lent_in[2], waits_small_in[2];
bit refused_in[2];               // a lent message was refused: its bytes will follow
byte answers_read[2];
byte outcome[2];                 // of the rank's call
byte has_poison[2];              // reason: rank + 1
byte spins[2];                   // own bells rung without other progress

#define over(r) (!waits_taken[r] && !waits_small_out[r] && !waits_lent_in[r] && !waits_small_in[r])

inline ring_bell(who) { rung[who] = 1 }

// Nothing moves after this.
inline poison(r, reason) {
  if
  :: has_poison[r] == 0 ->
#ifndef DEFECT_GUARD_KEPT
    guard[r] = 0;
#endif
    if
    :: poisoned_by == 0 ->
      note[r] = 1;
      if
      :: atomic { poisoned_by == 0 -> poisoned_by = r + 1 };
        ring_bell(0); ring_bell(1)
      :: poisoned_by != 0
      fi
    :: poisoned_by != 0
    fi;
    atomic {
      has_poison[r] = poisoned_by;
      if
      :: poisoned_by != r + 1 -> outcome[r] = TOLD
      :: else -> outcome[r] = reason
      fi;
      // The reason of the named rank is readable.
      assert(note[poisoned_by - 1]);
      do
      :: sends[r]?_
      :: empty(sends[r]) -> break
      od
    }
  :: else
  fi
}

inline give_answer(r, what) {
#ifdef DEFECT_ANSWERS_IN_RING
  atomic { sends[r]!what }
  push(r);
#else
  atomic { assert(answered[r] == answers_read[1 - r]); answers[r] = what; answered[r] = answered[r] + 1 };
  ring_bell(1 - r);
#endif
}

// Reads the bytes first, then the guard: the peer may have left, or be another process by then.
inline take_lent(r) {
  if
  :: seen_bytes = buffer[1 - r];
    if
    :: atomic { guard[1 - r] == 1 -> waits_lent_in[r] = 0; assert(seen_bytes == MESSAGE) };
      give_answer(r, TAKEN)
    :: guard[1 - r] != 1  // closed: waiting ranks will notice
    fi
  :: atomic { refused_in[r] = 1 };
    give_answer(r, REFUSED)
  fi
}

inline hear_answer(r, what) {
  if
  :: what == TAKEN -> waits_taken[r] = 0
  :: what == REFUSED ->
#ifndef DEFECT_REFUSAL_FORGOTTEN
    sends[r]!AGAIN;
#endif
#ifdef DEFECT_AGAIN_TWICE
    sends[r]!AGAIN;
#endif
    skip
  fi
}

inline pull(r) {
  do
  :: has_poison[r] == 0 && nempty(ring[1 - r]) ->
    atomic { ring[1 - r]?got; moved = 1; spins[1 - r] = 0 };
    if
    :: got == LENT -> take_lent(r)
    :: got == SMALL -> waits_small_in[r] = 0
    :: got == AGAIN -> atomic { assert(refused_in[r]); refused_in[r] = 0; waits_lent_in[r] = 0 }
    :: got == TAKEN || got == REFUSED -> atomic { hear_answer(r, got) }
    fi;
#ifndef DEFECT_WISH_NOT_SEEN
    if
    :: atomic { writer_waits[1 - r] -> writer_waits[1 - r] = 0 };
      ring_bell(1 - r)
    :: !writer_waits[1 - r]
    fi
#endif
  :: has_poison[r] != 0 || empty(ring[1 - r]) -> break
  od
}

inline pull_answers(r) {
  if
  :: answered[1 - r] != answers_read[r] ->
    atomic { answers_read[r] = answers_read[r] + 1; moved = 1; hear_answer(r, answers[1 - r]) }
  :: answered[1 - r] == answers_read[r]
  fi
}

inline push(r) {
  do
  :: nempty(sends[r]) && nfull(ring[r]) ->
    atomic {
      sends[r]?head;
      ring[r]!head;
      moved = 1;
      spins[r] = 0;
      if
      :: head == SMALL -> waits_small_out[r] = 0
      :: head == AGAIN -> waits_taken[r] = 0
      :: else
      fi
    };
    ring_bell(1 - r)
  :: empty(sends[r]) -> break
  :: nempty(sends[r]) && full(ring[r]) ->
    writer_waits[r] = 1;
    if
#ifdef DEFECT_ROOM_OF_ANY_SIZE
    // A little space is always left: less than a frame needs.
    :: atomic { full(ring[r]) -> spins[r] = spins[r] + 1; rung[r] = 1; assert(spins[r] < 3) }
#else
    :: full(ring[r])
#endif
#ifdef DEFECT_NO_LAST_LOOK
    :: nfull(ring[r])
#else
    :: nfull(ring[r]) -> ring_bell(r)
#endif
    fi;
    break
  od
}

inline progress(r) {
  atomic { moved = 0; told = poisoned_by };
  pull(r);
  pull_answers(r);
  push(r);
  if
  :: told != 0 -> poison(r, TOLD)
  :: else
  fi
}

// Whether the awaited peer is gone; checked before the last look at its messages.
inline look_for_peer(r) { atomic { is_missing = (state[1 - r] == LEFT || dead[1 - r]) } }

inline wait_for_all(r) {
  do
  :: over(r) -> outcome[r] = SUCCESS; break
  :: !over(r) && has_poison[r] != 0 -> break
  :: !over(r) && has_poison[r] == 0 ->
    rung[r] = 0;
#ifdef DEFECT_LOOKS_FOR_PEER_LAST
    progress(r);
    look_for_peer(r);
#else
    look_for_peer(r);
    progress(r);
#endif
    if
    :: moved || over(r) || has_poison[r] != 0
    :: !moved && !over(r) && has_poison[r] == 0 ->
      if
      :: is_missing -> poison(r, MISSING)
      :: !is_missing && gives_up[r] -> poison(r, GAVE_UP)
      :: !is_missing -> rung[r] || dead[1 - r]
      fi
    fi
  od
}

bit gives_up[2];  // a deadline that may pass in any wait, or never

proctype rank(byte r) {
  byte head, got, told, seen_bytes;
  bit moved, is_missing;
  {
    atomic {
      waits_taken[r] = 1; waits_small_out[r] = 1; waits_lent_in[r] = 1; waits_small_in[r] = 1;
      if
#ifdef DEFECT_LENT_WITHOUT_BOUND
      :: sends[r]!LENT; sends[r]!LENT; sends[r]!SMALL
#endif
      :: sends[r]!LENT; sends[r]!SMALL
      :: sends[r]!SMALL; sends[r]!LENT
      fi
    };
    wait_for_all(r);
    // The call has returned. No sender is denied a message that the other rank received completely.
    assert(!(outcome[r] == MISSING && outcome[1 - r] == SUCCESS));
    // All failing ranks have the same reason.
    assert(outcome[r] == SUCCESS || has_poison[r] == poisoned_by);
    buffer[r] = OTHER;
    if
    :: true -> goto end_stays  // its program keeps the communicator, and makes no call
    :: true
    fi;
    state[r] = LEFT;
    ring_bell(0); ring_bell(1);
    guard[r] = 0
    // The engine is gone.
  } unless { dead[r] };
  // Another engine, of this process or of one that reuses its process id.
#ifdef DEFECT_GUARDS_ALIKE
  atomic { buffer[r] = OTHER; guard[r] = 1 }
#else
  atomic { buffer[r] = OTHER; guard[r] = 2 }
#endif
end_stays:
  skip
}

// With ONLY_GIVING_UP, nobody dies; with ONLY_DEATH, nobody gives up. These two explorations together take a tenth of
// the time of one with both.
proctype death() {
  if
#ifndef ONLY_GIVING_UP
  :: dead[0] = 1
  :: dead[1] = 1
#endif
  :: skip
  fi
}

init {
  atomic {
    if
#ifndef ONLY_DEATH
    :: gives_up[0] = 1
    :: gives_up[1] = 1
#endif
    :: skip
    fi;
    run rank(0); run rank(1);
    run death()
  }
}
