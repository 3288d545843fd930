// SPDX-License-Identifier: Apache-2.0
// How three ranks of the room shared_memory learn that one of them has given up, for Spin. Rank 0 gives up, or dies;
// rank 1 waits for rank 0, and rank 2 for rank 1, who stays in the group after its error without a further call. Two of
// them may die between any two accesses to shared memory, and memory may be short when an error is written down.
// A sleeping rank looks again after a while, too. Here that helps only when a process has died before it rang the bells:
// without a death, a bell that is missing is a deadlock.
// run.py turns on the defects; docs/rooms/shared_memory.md lists the invariants. Messages: shared_memory.pml.

#define RANKS 3
#define CODE_ALONE 1  // notes: there was no memory for the text
#define WHOLE 2

// --- shared memory; it outlives every process ---
byte poisoned_by;   // rank + 1
byte note[RANKS];   // of the rank's reason
bit rung[RANKS];    // bells
#ifdef DEFECT_CLAIMED_FIRST
bit claimed;        // one note for all; who has claimed it writes it
#endif

bit dead[RANKS];
byte knows[RANKS];  // the reason that the rank's calls return: rank + 1

#define some_died (dead[0] || dead[1] || dead[2])

inline ring_all_bells() { rung[0] = 1; rung[1] = 1; rung[2] = 1 }

inline write_note(r) {
  if
  :: note[r] = WHOLE
  :: note[r] = CODE_ALONE
  fi
}

inline poison(r) {
#ifdef DEFECT_CLAIMED_FIRST
  if
  :: atomic { poisoned_by == 0 && !claimed -> claimed = 1 };
    if
    :: write_note(r);
      poisoned_by = r + 1;
      ring_all_bells()
    :: true  // an exception for want of memory leaves the claim
    fi
  :: poisoned_by != 0 || claimed
  fi;
#else
  if
  :: poisoned_by == 0 ->
#ifndef DEFECT_NOTE_LAST
    write_note(r);
#endif
    if
    :: atomic { poisoned_by == 0 -> poisoned_by = r + 1 };
#ifdef DEFECT_NOTE_LAST
      write_note(r);
#endif
#ifndef DEFECT_NO_BELLS
      ring_all_bells()
#else
      skip
#endif
    :: poisoned_by != 0
    fi
  :: poisoned_by != 0
  fi;
#endif
  atomic {
    knows[r] = (poisoned_by != 0 -> poisoned_by : r + 1);
    // The reason can be read, and it is the first one, whoever asks.
    assert(poisoned_by == 0 || note[poisoned_by - 1] != 0);
    assert(knows[r] == poisoned_by)
  }
}

proctype waiter(byte r) {
  bit is_missing;
  byte told;
  {
    do
    :: knows[r] != 0 -> break
    :: knows[r] == 0 ->
      rung[r] = 0;
      is_missing = dead[r - 1];
      told = poisoned_by;
      if
      :: told != 0 || is_missing -> poison(r)
      :: told == 0 && !is_missing -> rung[r] || dead[r - 1] || (some_died && poisoned_by != 0)
      fi
    od
  } unless { dead[r] }
}

proctype giver_up() {
  { poison(0) } unless { dead[0] }
}

proctype deaths() {
  byte left = 2;
  do
  :: left > 0 && !dead[0] -> atomic { dead[0] = 1; left-- }
  :: left > 0 && !dead[1] -> atomic { dead[1] = 1; left-- }
  :: left > 0 && !dead[2] -> atomic { dead[2] = 1; left-- }
  :: break
  od
}

init {
  atomic { run giver_up(); run waiter(1); run waiter(2); run deaths() }
}
