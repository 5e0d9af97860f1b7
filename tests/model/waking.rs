//! A parent that waits for its children several times, and the processes that wake it.
//!
//! The ends of children are committed in transactions of their own. The parent check follows later: by the
//! process that committed an end (`run_wake.sql`), or by a sweep (`run_wake_missed.sql`). Both read with the snapshot
//! of a statement and write later. If the row of the parent has changed by then, Postgres looks at the newest
//! version of that row again, but at no other row.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const NO_STEP_TOO_EARLY: &str = "no step starts, and no parent commits, before all children have ended (I1)";
const WOKEN_ONCE: &str = "each wait is over once";
const FAILURES_TOLD: &str = "no parent commits over a child that failed";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The last child looks for its siblings before its own end is committed.
    LooksBeforeCommit,
    /// A wake-up does not compare the epoch of the parent with the one in its snapshot.
    WakeComparesNoEpoch,
    SweepComparesNoEpoch,
    /// No sweep looks for parents that were not woken.
    NoSweep,
    /// A parent check under way also answers for children that end meanwhile.
    AsksOnce,
    /// A parent waits for a child that failed and stays only until its parent knows.
    FailedCount,
    /// A dead worker is removed although one of its wake-ups is under way.
    ReapDoesNotWait,
    /// A parent without a step left commits when it wakes, even over failed children.
    CommitsOverFailures,
}

/// The size of the model.
struct Join {
    processes: usize,
    children: usize,
    /// How often the parent waits.
    waits: u8,
    /// How many processes die, or answers are lost.
    faults: u8,
    /// Whether processes sweep.
    sweeps: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parent {
    Ready,
    Running(usize),
    Waiting,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Child {
    Ready,
    Running(usize),
    /// Its end is written but not committed.
    Ending {
        by: usize,
        fails: bool,
        is_last: bool,
    },
    /// It failed, and its parent does not know yet.
    Ended,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    listed: bool,
    /// A child has ended here, and the parent check is still to be sent.
    gathered: bool,
    /// The epoch that a wake-up saw of a parent without unfinished children, and whether a slot is free to
    /// claim it.
    wakes: Option<(u8, bool)>,
    /// The epoch that a sweep saw.
    sweeps: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    parent: Parent,
    epoch: u8,
    waits: u8,
    wakeups: u8,
    /// Sorted, because children are interchangeable.
    children: Vec<Child>,
    processes: Vec<Process>,
    faults: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Claims(usize),
    Settles(usize),
    ClaimsChild(usize, Child),
    EndsChild(usize, bool),
    Commits(Child),
    CommitsUnheard(Child),
    RollsBack(Child),
    Asks {
        process: usize,
        has_room: bool,
    },
    Wakes(usize),
    /// The parent had no step left.
    Ends(usize),
    Looks(usize),
    Sweeps(usize),
    /// A statement of a dead process is never carried out.
    Vanishes(usize),
    Dies(usize),
    Reaps {
        dead: usize,
    },
}

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.children.sort_unstable();
        next
    }

    fn change_child(&self, from: Child, to: Child) -> Self {
        self.change(|next| {
            let at = next.children.iter().position(|child| *child == from).expect("it was there");
            next.children[at] = to;
        })
    }

    fn has_child(&self, child: Child) -> bool {
        self.children.contains(&child)
    }

    /// Whether a snapshot taken now finds the parent waiting, with all its children ended.
    fn waits_without_unfinished_child(&self, fault: Option<Fault>) -> bool {
        let counts = |child: &Child| match child {
            Child::Gone => false,
            Child::Ended => fault == Some(Fault::FailedCount),
            Child::Ready | Child::Running(_) | Child::Ending { .. } => true,
        };
        self.parent == Parent::Waiting && !self.children.iter().any(counts)
    }

    fn end_parent(&mut self) {
        self.parent = Parent::Gone;
        self.epoch += 1;
        self.wakeups += 1;
    }

    fn wake(&mut self, claimed_by: Option<usize>) {
        self.parent = claimed_by.map_or(Parent::Ready, Parent::Running);
        self.epoch += u8::from(claimed_by.is_some());
        self.wakeups += 1;
    }

    /// Makes the end of a child visible.
    fn end(&self, child: Child, fault: Option<Fault>, heard: bool) -> Self {
        let Child::Ending { by, fails, is_last } = child else {
            unreachable!("only an end is committed");
        };
        let mut next = self.change_child(child, if fails { Child::Ended } else { Child::Gone });
        let process = &mut next.processes[by];
        match fault {
            Some(Fault::LooksBeforeCommit) if is_last => next.wake(None),
            Some(Fault::LooksBeforeCommit) => {}
            Some(Fault::AsksOnce) if process.wakes.is_some() => {}
            _ => process.gathered |= heard && process.alive,
        }
        next
    }
}

impl Join {
    /// Moves of a process that executes the parent and its children.
    fn work(&self, state: &State, process: usize, moves: &mut Vec<(Move, State)>) {
        if state.parent == Parent::Ready {
            let claimed = state.change(|next| {
                next.parent = Parent::Running(process);
                next.epoch += 1;
            });
            moves.push((Move::Claims(process), claimed));
        }
        if state.parent == Parent::Running(process) {
            moves.push((Move::Settles(process), state.change(|next| self.settle(next))));
        }
        if state.has_child(Child::Ready) {
            let taken = state.change_child(Child::Ready, Child::Running(process));
            moves.push((Move::ClaimsChild(process, Child::Ready), taken));
        }
        if state.has_child(Child::Running(process)) {
            for fails in [false, true] {
                let others = state.children.iter();
                let left = others.filter(|child| !matches!(child, Child::Ended | Child::Gone)).count();
                let ending = Child::Ending { by: process, fails, is_last: left == 1 };
                let written = state.change_child(Child::Running(process), ending);
                moves.push((Move::EndsChild(process, fails), written));
            }
        }
    }

    /// Settles a step of the parent: it launches children, or was the last.
    fn settle(&self, next: &mut State) {
        if next.waits < self.waits {
            next.children = vec![Child::Ready; self.children];
            (next.parent, next.waits) = (Parent::Waiting, next.waits + 1);
        } else {
            next.children.clear();
            next.parent = Parent::Gone;
        }
        next.epoch += 1;
    }

    /// Checks the parent, and sweeps.
    fn look(&self, state: &State, process: usize, moves: &mut Vec<(Move, State)>) {
        let here = &state.processes[process];
        let waits_without_unfinished_child = state.waits_without_unfinished_child(self.fault);
        if here.gathered && here.wakes.is_none() {
            for has_room in [false, true] {
                let asks = state.change(|next| {
                    next.processes[process].gathered = false;
                    next.processes[process].wakes =
                        waits_without_unfinished_child.then_some((next.epoch, has_room));
                });
                moves.push((Move::Asks { process, has_room }, asks));
            }
        }
        if self.sweeps
            && self.fault != Some(Fault::NoSweep)
            && here.sweeps.is_none()
            && waits_without_unfinished_child
        {
            let looks = state.change(|next| next.processes[process].sweeps = Some(next.epoch));
            moves.push((Move::Looks(process), looks));
        }
    }

    /// Carries out sent statements, whether or not their sender still lives.
    fn carry_out(&self, state: &State, process: usize, moves: &mut Vec<(Move, State)>) {
        let here = &state.processes[process];
        let is_the_same =
            |epoch, lax| state.parent == Parent::Waiting && (epoch == state.epoch || self.fault == Some(lax));
        if let Some((epoch, has_room)) = here.wakes {
            let carried_out = |write: &dyn Fn(&mut State)| {
                state.change(|next| {
                    next.processes[process].wakes = None;
                    if is_the_same(epoch, Fault::WakeComparesNoEpoch) {
                        write(next);
                    }
                })
            };
            let woken = carried_out(&|next| next.wake(has_room.then_some(process)));
            moves.push((Move::Wakes(process), woken));
            // In the snapshot all its children had ended, so none of them fails later.
            let failed = state.has_child(Child::Ended) && self.fault != Some(Fault::CommitsOverFailures);
            if state.waits == self.waits && !failed {
                moves.push((Move::Ends(process), carried_out(&State::end_parent)));
            }
        }
        if let Some(epoch) = here.sweeps {
            let swept = state.change(|next| {
                next.processes[process].sweeps = None;
                if is_the_same(epoch, Fault::SweepComparesNoEpoch) {
                    next.wake(None);
                }
            });
            moves.push((Move::Sweeps(process), swept));
        }
        if !here.alive && (here.wakes.is_some() || here.sweeps.is_some()) {
            let vanished = state.change(|next| {
                (next.processes[process].wakes, next.processes[process].sweeps) = (None, None);
            });
            moves.push((Move::Vanishes(process), vanished));
        }
    }

    fn commit(&self, state: &State, moves: &mut Vec<(Move, State)>) {
        for child in state.children.iter().copied() {
            let Child::Ending { by, .. } = child else {
                continue;
            };
            moves.push((Move::Commits(child), state.end(child, self.fault, true)));
            if !state.processes[by].alive {
                moves.push((Move::RollsBack(child), state.change_child(child, Child::Running(by))));
            } else if state.faults > 0 {
                let mut unheard = state.end(child, self.fault, false);
                unheard.faults -= 1;
                moves.push((Move::CommitsUnheard(child), unheard));
            }
        }
    }

    /// Deaths, and the reaction of living processes.
    fn die(&self, state: &State, process: usize, moves: &mut Vec<(Move, State)>) {
        let here = &state.processes[process];
        let others_live = state.processes.iter().filter(|process| process.alive).count() > 1;
        if here.alive && others_live && state.faults > 0 {
            let dead = state.change(|next| {
                next.processes[process].alive = false;
                next.processes[process].gathered = false;
                next.faults -= 1;
            });
            moves.push((Move::Dies(process), dead));
        }
        // Removing a worker waits for its claims, and releasing a run waits for a row that is being written.
        let holds_its_row = here.wakes.is_some() && self.fault != Some(Fault::ReapDoesNotWait);
        let writes = |child: &Child| matches!(child, Child::Ending { by, .. } if *by == process);
        if !here.alive && here.listed && !holds_its_row && !state.children.iter().any(writes) {
            let freed = state.change(|next| {
                next.processes[process].listed = false;
                if next.parent == Parent::Running(process) {
                    next.parent = Parent::Ready;
                }
                let taken = next.children.iter_mut().filter(|child| **child == Child::Running(process));
                taken.for_each(|child| *child = Child::Ready);
            });
            moves.push((Move::Reaps { dead: process }, freed));
        }
    }
}

impl Model for Join {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        let process = Process { alive: true, listed: true, gathered: false, wakes: None, sweeps: None };
        State {
            parent: Parent::Ready,
            epoch: 0,
            waits: 0,
            wakeups: 0,
            children: vec![],
            processes: vec![process; self.processes],
            faults: self.faults,
        }
    }

    fn moves(&self, state: &State) -> Vec<(Move, State)> {
        let mut moves = vec![];
        for (process, here) in state.processes.iter().enumerate() {
            if here.alive {
                self.work(state, process, &mut moves);
                self.look(state, process, &mut moves);
            }
            self.carry_out(state, process, &mut moves);
            self.die(state, process, &mut moves);
        }
        self.commit(state, &mut moves);
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        matches!(a_move, Move::Dies(_) | Move::CommitsUnheard(_))
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let unfinished = |child: &Child| !matches!(child, Child::Ended | Child::Gone);
        let goes_on = state.parent != Parent::Waiting;
        if goes_on && state.children.iter().any(unfinished) {
            return Some(NO_STEP_TOO_EARLY);
        }
        if state.parent == Parent::Gone && state.has_child(Child::Ended) {
            return Some(FAILURES_TOLD);
        }
        let over = state.waits - u8::from(state.parent == Parent::Waiting);
        (state.wakeups != over).then_some(WOKEN_ONCE)
    }

    fn is_at_rest(&self, state: &State) -> bool {
        state.parent == Parent::Gone
    }
}

const WITHOUT_FAULTS: Join =
    Join { processes: 2, children: 3, waits: 2, faults: 0, sweeps: false, fault: None };
const WITH_FAULTS: Join = Join { processes: 2, children: 2, waits: 2, faults: 1, sweeps: true, fault: None };

#[test]
fn waiting_parent_is_woken_without_a_sweep_if_nothing_is_lost() {
    holds("join", &WITHOUT_FAULTS);
    holds("join, three processes", &Join { processes: 3, children: 2, waits: 1, ..WITHOUT_FAULTS });
}

#[test]
fn waiting_parent_is_woken_after_deaths() {
    holds("join with faults", &WITH_FAULTS);
    holds("join with two faults", &Join { processes: 3, children: 2, waits: 1, faults: 2, ..WITH_FAULTS });
}

#[test]
fn every_fault_in_waking_is_detected() {
    let quiet = |fault| Join { fault: Some(fault), ..WITHOUT_FAULTS };
    let noisy = |fault| Join { fault: Some(fault), ..WITH_FAULTS };
    violates("looks before the commit", &quiet(Fault::LooksBeforeCommit), COMES_TO_REST);
    violates("asks once", &quiet(Fault::AsksOnce), COMES_TO_REST);
    violates("failed children count", &quiet(Fault::FailedCount), COMES_TO_REST);
    violates("a wake-up compares no epoch", &quiet(Fault::WakeComparesNoEpoch), NO_STEP_TOO_EARLY);
    violates("a sweep compares no epoch", &noisy(Fault::SweepComparesNoEpoch), NO_STEP_TOO_EARLY);
    violates("no sweep", &noisy(Fault::NoSweep), COMES_TO_REST);
    violates("commits over failures", &quiet(Fault::CommitsOverFailures), FAILURES_TOLD);
    violates("reaps without waiting", &noisy(Fault::ReapDoesNotWait), COMES_TO_REST);
}
