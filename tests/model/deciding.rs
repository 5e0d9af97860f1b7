//! A parent that waits by a strategy: for a number of its children to commit.
//!
//! The parent sleeps until few enough children are left, then a process claims it, reads what became of the children, and writes what
//! the strategy says. Children end meanwhile. Before a parent goes on, or gives up, the others are cancelled in transactions of their own.
//! How a parent check and a claim exclude each other is in [`waking`](crate::waking) and [`fence`](crate::fence): here each is one move.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const DECIDED_ONCE: &str = "a strategy decides once";
const RIGHTLY: &str =
    "a parent goes on if enough children have committed, and gives up if they cannot any more";
const NOT_ASLEEP: &str = "no parent sleeps whose strategy would decide";
const OTHERS_CANCELLED: &str = "no child is left without a cancellation";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// After its decision to wait, no parent check follows for the ends that it has not read.
    NoLookAfterwards,
    /// How many children may be left is counted when the decision is written, not when it is made.
    CountsWhenWritten,
    /// The decision is asked for again when all children have ended, as without a strategy.
    WaitsForAll,
    /// The decision does not compare the epoch of the parent.
    DecisionComparesNoEpoch,
    /// The others are cancelled after the decision is written.
    CancelsAfterwards,
    /// No sweep looks for parents whose check was lost.
    NoSweep,
}

/// The size of the model.
struct Quorum {
    children: usize,
    /// How many have to commit.
    needed: usize,
    /// How often a process dies, is presumed dead, or a check is lost.
    faults: u8,
    sweeps: bool,
    fault: Option<Fault>,
}

/// What a process has read: how many children had committed, and how many had not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Facts {
    committed: usize,
    unfinished: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Verdict {
    GoesOn,
    GivesUp,
    Waits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parent {
    Ready,
    /// A process has claimed it.
    Claimed(Option<Facts>),
    /// Until at most so many children have not ended.
    Asleep(usize),
    Decided(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Child {
    Running,
    Committed,
    Failed,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    parent: Parent,
    epoch: u8,
    /// Sorted, because children are interchangeable.
    children: Vec<Child>,
    are_cancelled: bool,
    /// A parent check is to be made.
    check: bool,
    /// A process that was presumed dead has still to write its decision, by these facts, under this epoch.
    zombie: Option<(Facts, u8)>,
    decisions: u8,
    faults: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Claims,
    Reads,
    Cancels,
    Writes,
    ZombieWrites,
    EndsChild(Child),
    Checks,
    Sweeps,
    EndsUnheard(Child),
    /// The process dies, or is presumed dead and goes on.
    Loses {
        goes_on: bool,
    },
}

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.children.sort_unstable();
        next
    }

    fn facts(&self) -> Facts {
        let count = |kind| self.children.iter().filter(|child| **child == kind).count();
        Facts { committed: count(Child::Committed), unfinished: count(Child::Running) }
    }

    fn end(&self, end: Child, heard: bool) -> Self {
        self.change(|next| {
            let at = next.children.iter().position(|child| *child == Child::Running).expect("one is running");
            next.children[at] = end;
            next.check |= heard;
        })
    }

    /// Wakes the parent if few enough children are left.
    fn wake(&mut self) {
        if matches!(self.parent, Parent::Asleep(most) if self.facts().unfinished <= most) {
            self.parent = Parent::Ready;
        }
    }
}

impl Quorum {
    fn verdict(&self, Facts { committed, unfinished }: Facts) -> Verdict {
        match () {
            () if committed >= self.needed => Verdict::GoesOn,
            () if committed + unfinished < self.needed => Verdict::GivesUp,
            () => Verdict::Waits,
        }
    }

    /// How many children may be left when the strategy decides again, by these facts.
    fn left(&self, facts: Facts, counted: usize) -> usize {
        let Facts { committed, unfinished } = facts;
        let ends = (self.needed - committed).min(committed + unfinished + 1 - self.needed);
        match self.fault {
            Some(Fault::WaitsForAll) => 0,
            Some(Fault::CountsWhenWritten) => counted.saturating_sub(ends),
            _ => unfinished - ends,
        }
    }

    /// Writes a decision by these facts.
    fn write(&self, next: &mut State, facts: Facts) {
        next.epoch += 1;
        match self.verdict(facts) {
            Verdict::Waits => {
                next.parent = Parent::Asleep(self.left(facts, next.facts().unfinished));
                next.check |= self.fault != Some(Fault::NoLookAfterwards);
            }
            verdict => {
                next.parent = Parent::Decided(verdict);
                next.decisions += 1;
            }
        }
    }

    /// Moves of the process that decides.
    fn decide(&self, state: &State, moves: &mut Vec<(Move, State)>) {
        match state.parent {
            Parent::Ready => {
                let claimed = state.change(|next| {
                    (next.parent, next.epoch) = (Parent::Claimed(None), next.epoch + 1);
                });
                moves.push((Move::Claims, claimed));
            }
            Parent::Claimed(None) => {
                let read = state.change(|next| next.parent = Parent::Claimed(Some(next.facts())));
                moves.push((Move::Reads, read));
            }
            Parent::Claimed(Some(facts)) => {
                let cancels = self.verdict(facts) != Verdict::Waits && facts.unfinished > 0;
                if cancels && !state.are_cancelled && self.fault != Some(Fault::CancelsAfterwards) {
                    moves.push((Move::Cancels, state.change(|next| next.are_cancelled = true)));
                } else {
                    moves.push((Move::Writes, state.change(|next| self.write(next, facts))));
                }
            }
            Parent::Asleep(_) | Parent::Decided(_) => {}
        }
        let is_claimed = matches!(state.parent, Parent::Claimed(_));
        if is_claimed && state.faults > 0 {
            for goes_on in [false, true] {
                let lost = state.change(|next| {
                    if let (Parent::Claimed(Some(facts)), true) = (next.parent, goes_on) {
                        next.zombie = Some((facts, next.epoch));
                    }
                    (next.parent, next.faults) = (Parent::Ready, next.faults - 1);
                });
                moves.push((Move::Loses { goes_on }, lost));
            }
        }
        if let Some((facts, epoch)) = state.zombie {
            let holds =
                is_claimed && epoch == state.epoch || self.fault == Some(Fault::DecisionComparesNoEpoch);
            let written = state.change(|next| {
                next.zombie = None;
                if holds {
                    self.write(next, facts);
                }
            });
            moves.push((Move::ZombieWrites, written));
        }
    }
}

impl Model for Quorum {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        State {
            parent: Parent::Claimed(None),
            epoch: 0,
            children: vec![Child::Running; self.children],
            are_cancelled: false,
            check: false,
            zombie: None,
            decisions: 0,
            faults: self.faults,
        }
    }

    fn moves(&self, state: &State) -> Vec<(Move, State)> {
        let mut moves = vec![];
        self.decide(state, &mut moves);
        if state.children.contains(&Child::Running) {
            for end in [Child::Committed, Child::Failed] {
                moves.push((Move::EndsChild(end), state.end(end, true)));
                if state.faults > 0 {
                    let unheard = state.end(end, false).change(|next| next.faults -= 1);
                    moves.push((Move::EndsUnheard(end), unheard));
                }
            }
        }
        let checked = |next: &mut State| {
            next.check = false;
            next.wake();
        };
        if state.check {
            moves.push((Move::Checks, state.change(checked)));
        }
        if self.sweeps && self.fault != Some(Fault::NoSweep) {
            moves.push((Move::Sweeps, state.change(State::wake)));
        }
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        matches!(a_move, Move::Loses { .. } | Move::EndsUnheard(_))
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let Facts { committed, unfinished } = state.facts();
        if state.decisions > 1 || state.decisions == 1 && !matches!(state.parent, Parent::Decided(_)) {
            return Some(DECIDED_ONCE);
        }
        let verdict = self.verdict(state.facts());
        match state.parent {
            Parent::Decided(Verdict::GoesOn) if committed < self.needed => Some(RIGHTLY),
            Parent::Decided(Verdict::GivesUp) if committed + unfinished >= self.needed => Some(RIGHTLY),
            Parent::Decided(_) if unfinished > 0 && !state.are_cancelled => Some(OTHERS_CANCELLED),
            // A sweep finds those whose check was lost.
            Parent::Asleep(_) if verdict != Verdict::Waits && !state.check && !self.sweeps => {
                Some(NOT_ASLEEP)
            }
            _ => None,
        }
    }

    fn is_at_rest(&self, state: &State) -> bool {
        matches!(state.parent, Parent::Decided(_))
    }
}

const QUIET: Quorum = Quorum { children: 4, needed: 2, faults: 0, sweeps: false, fault: None };
const NOISY: Quorum = Quorum { children: 3, needed: 2, faults: 2, sweeps: true, fault: None };

#[test]
fn parent_with_a_strategy_goes_on_as_soon_as_it_allows_that() {
    for needed in 1..=4 {
        holds("quorum", &Quorum { needed, ..QUIET });
    }
}

#[test]
fn parent_with_a_strategy_goes_on_after_deaths() {
    for needed in 1..=3 {
        holds("quorum with faults", &Quorum { needed, ..NOISY });
    }
}

#[test]
fn every_fault_in_strategies_is_detected() {
    let quiet = |fault| Quorum { fault: Some(fault), ..QUIET };
    let noisy = |fault| Quorum { fault: Some(fault), ..NOISY };
    violates("no look afterwards", &quiet(Fault::NoLookAfterwards), NOT_ASLEEP);
    violates("counts when written", &quiet(Fault::CountsWhenWritten), NOT_ASLEEP);
    violates("waits for all", &quiet(Fault::WaitsForAll), NOT_ASLEEP);
    violates("a decision compares no epoch", &noisy(Fault::DecisionComparesNoEpoch), OTHERS_CANCELLED);
    violates("cancels afterwards", &quiet(Fault::CancelsAfterwards), OTHERS_CANCELLED);
    violates("no sweep", &noisy(Fault::NoSweep), COMES_TO_REST);
}
