// SPDX-License-Identifier: Apache-2.0
// A Spin model of how three ranks of module shared_memory learn that one of them has given up. Rank 0 gives up, or
// dies. Rank 1 waits for rank 0, and rank 2 for rank 1, which stays in the group after its error without another call.
// Two of them may die between any two accesses to shared memory, and memory may run out while an error is recorded. A
// sleeping rank also wakes up after a while. In the model, that helps only if a process died before it rang the bells:
// without a death, a missing bell is a deadlock.
// run.py turns on the defects; docs/rooms/shared_memory.md lists the invariants. Messages are in shared_memory.pml.

#define RANKS 3
#define CODE_ALONE 1  // notes: there was no memory for the text
#define WHOLE 2

// --- shared memory; it outlives every process ---
byte poisoned_by;   // rank + 1
byte note[RANKS];   // the rank's reason
bit rung[RANKS];    // bells
#ifdef DEFECT_CLAIMED_FIRST
bit claimed;        // one note for all ranks; its claimant writes it
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
    :: true  // an out-of-memory exception leaves the claim
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
    // The reason is readable, and every rank gets the first one.
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
