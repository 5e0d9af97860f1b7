//! A rollback that failed and rests as a row, and the operators who decide about it.
//!
//! A root waits for a parent, which waits for two leaves, and all of them roll back. A run whose rollback fails stays
//! in the table. The run above it fails too, or accepts the failure, which detaches the failed run. A decision is one
//! transaction: `run_lock_lineage.sql`, `run_read_repair.sql`, and `run_repair.sql` or the end of the runs. The
//! advisory lock of the hierarchy lets one transaction decide at a time, so that one operator here, who decides any
//! number of times, stands for all of them: the next decision about the same run finds what the first has left.
//!
//! Epochs only grow and are only compared for equality, so that a snapshot knows only whether it has the current one.
//! Thus nothing has to be bounded: failures, missed deadlines, deaths and decisions may happen any number of times. A
//! row that has left the table does not come back, since no statement inserts one.
//!
//! A transaction that locks several rows locks a run before the runs below it: a settlement its own row and then those
//! of the failed children, a decision the lineage and then the runs below, which only a settlement of a run that it has
//! locked would lock. Every other transaction here locks one row. So no transactions wait for each other in a circle,
//! which a decision does that begins at the other end.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const NO_STEP_TOO_EARLY: &str =
    "no run goes on over a child that is unfinished, or failed and not accepted (I1)";
const FAILED_FOR_A_REASON: &str = "a run that did not fail by itself has failed children and no other ones";
const REST_UNTIL_DECIDED: &str = "a run that failed by itself goes on only after a decision about it";
const OWNER_SETTLES: &str = "only the current owner settles a run";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A decision relies on what it reads without locks.
    LocksNoLineage,
    LocksLeafFirst,
    /// A decision is made while the parent has seen the failed child and is about to record a failure of its own.
    IgnoresRunningParent,
    /// A wake-up does not compare the epoch of the parent with the one in its snapshot.
    WakeComparesNoEpoch,
    /// A decision leaves the epoch of a waiting run above as it was.
    WaitingKeepsEpoch,
    /// The same, if it only resolves the run below.
    WaitingKeepsEpochIfResolved,
    AncestorsStayFailed,
    /// A run above that failed by itself waits again.
    RevivesWhoGaveUp,
    ResolvesWithoutWake,
    SkipsWithoutDetaching,
    SettlesWithoutFence,
}

/// What may happen, and what has to be reached.
struct Repair {
    /// Whether processes sweep. Otherwise no wake-up is lost.
    sweeps: bool,
    dies: bool,
    /// Rest is that everything has ended, which may take retries; otherwise that no run goes on without an operator.
    is_retried: bool,
    fault: Option<Fault>,
}

const ROOT: usize = 0;
const PARENT: usize = 1;
/// Numbers 2 and 3 are the leaves.
const RUNS: usize = 4;

const PARENTS: [Option<usize>; RUNS] = [None, Some(ROOT), Some(PARENT), Some(PARENT)];

/// A running one knows whether its claim found failed children, and whether the transaction of its settlement has
/// begun. The row of one that is gone has left the table: it is rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    Ready,
    Running { saw_failed: bool, settles: bool },
    Waiting,
    Failed { by_itself: bool },
    Gone,
}

/// The transaction that locks a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    Decision,
    Settlement(usize),
}

/// The snapshot of a statement that wakes a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Look {
    has_epoch: bool,
    saw_failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    standing: Standing,
    /// The run above waits for it.
    attached: bool,
    lock: Option<Lock>,
    look: Option<Look>,
    /// A run below has ended or failed, and the parent check is still to be sent: only without sweeps.
    gathered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Retry,
    Skip,
    Resolve,
}

/// What a decision does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Write {
    GoesOn,
    WaitsAgain,
    KeepsWaiting,
    Detached,
    Ends,
}

type Writes = [Option<Write>; RUNS];

/// The transaction of a decision: first it locks the rows of the lineage, of which it has locked so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operator {
    Idle,
    Locks { target: usize, locked: usize },
    Decided { target: usize, writes: Writes },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    runs: [Run; RUNS],
    operator: Operator,
    /// The owner of this run was presumed dead, and lives.
    stale: Option<usize>,
    /// A property that a move violated.
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Claims(usize),
    BeginsToSettle(usize),
    LocksChild(usize),
    Ends(usize),
    Accepts(usize),
    Fails { run: usize, by_itself: bool },
    Looks(usize),
    Wakes(usize),
    WakesAndClaims(usize),
    Reaps(usize),
    SettlesLate(usize),
    Begins { target: usize },
    LocksLineage(usize),
    Reads(Decision),
    Refuses(Decision),
    Commits,
}

type Moves = Vec<(Move, State)>;

impl Run {
    const fn new(standing: Standing) -> Self {
        Self { standing, attached: true, lock: None, look: None, gathered: false }
    }

    fn is_there(&self) -> bool {
        self.standing != Standing::Gone
    }

    fn is_failed(&self) -> bool {
        matches!(self.standing, Standing::Failed { .. })
    }

    /// With a new epoch.
    fn renew(&mut self, standing: Standing) {
        self.standing = standing;
        self.raise_epoch();
    }

    fn raise_epoch(&mut self) {
        if let Some(look) = &mut self.look {
            look.has_epoch = false;
        }
    }
}

fn children_of(parent: usize) -> impl Iterator<Item = usize> {
    (0..RUNS).filter(move |run| PARENTS[*run] == Some(parent))
}

/// The runs from the root to this one.
fn lineage_of(run: usize) -> Vec<usize> {
    let mut lineage: Vec<_> = std::iter::successors(Some(run), |run| PARENTS[*run]).collect();
    lineage.reverse();
    lineage
}

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = *self;
        change(&mut next);
        next
    }

    /// The run that waits for this one.
    fn above(&self, run: usize) -> Option<usize> {
        PARENTS[run].filter(|_| self.runs[run].attached)
    }

    /// The runs that this one waits for.
    fn below(&self, run: usize) -> impl Iterator<Item = usize> {
        children_of(run).filter(|child| self.runs[*child].attached && self.runs[*child].is_there())
    }

    fn has_failed_below(&self, run: usize) -> bool {
        self.below(run).any(|child| self.runs[child].is_failed())
    }

    fn has_unfinished_below(&self, run: usize) -> bool {
        self.below(run).any(|child| !self.runs[child].is_failed())
    }

    fn claim(&mut self, run: usize, saw_failed: bool) {
        self.runs[run].renew(Standing::Running { saw_failed, settles: false });
    }

    /// The row leaves the table, or stays as a failed one. A parent check follows if that is told.
    fn finish(&mut self, run: usize, standing: Standing, is_told: bool) {
        if let Some(above) = self.above(run) {
            self.runs[above].gathered |= is_told && self.runs[above].is_there();
        }
        if standing == Standing::Gone {
            self.runs[run] = Run::new(standing);
        }
        self.runs[run].standing = standing;
    }

    fn end_decision(&mut self) {
        self.operator = Operator::Idle;
        self.unlock(Lock::Decision);
    }

    fn unlock(&mut self, lock: Lock) {
        self.runs.iter_mut().filter(|run| run.lock == Some(lock)).for_each(|run| run.lock = None);
    }
}

impl Repair {
    /// Claim and settlement.
    fn execute(&self, state: &State, run: usize, moves: &mut Moves) {
        let here = &state.runs[run];
        match here.standing {
            // A claim takes no row that is locked, or has changed since its snapshot.
            Standing::Ready if here.lock.is_none() => {
                let claimed = state.change(|next| next.claim(run, state.has_failed_below(run)));
                moves.push((Move::Claims(run), claimed));
            }
            Standing::Running { saw_failed, settles: false } if here.lock.is_none() => {
                let begun = state.change(|next| {
                    next.runs[run].standing = Standing::Running { saw_failed, settles: true };
                    next.runs[run].lock = Some(Lock::Settlement(run));
                });
                moves.push((Move::BeginsToSettle(run), begun));
            }
            Standing::Running { saw_failed, settles: true } => self.settle(state, run, saw_failed, moves),
            Standing::Waiting if run == PARENT && here.lock.is_none() => {
                let failed = Standing::Failed { by_itself: true };
                let gives_up = state.change(|next| next.finish(run, failed, !self.sweeps));
                moves.push((Move::Fails { run, by_itself: true }, gives_up));
            }
            _ => {}
        }
    }

    /// A settlement locks the failed children and commits.
    fn settle(&self, state: &State, run: usize, saw_failed: bool, moves: &mut Moves) {
        let mine = Some(Lock::Settlement(run));
        let is_open = |child: &usize| state.runs[*child].is_failed() && state.runs[*child].lock != mine;
        if let Some(child) = state.below(run).find(is_open) {
            if state.runs[child].lock.is_none() {
                moves.push((Move::LocksChild(child), state.change(|next| next.runs[child].lock = mine)));
            }
            return;
        }
        let commit = |standing| {
            state.change(|next| {
                if saw_failed && standing == Standing::Gone {
                    let accepted = children_of(run).filter(|child| state.runs[*child].lock == mine);
                    accepted.for_each(|child| next.runs[child].attached = false);
                }
                next.unlock(Lock::Settlement(run));
                next.finish(run, standing, !self.sweeps);
            })
        };
        let mut fail = |by_itself| {
            moves.push((Move::Fails { run, by_itself }, commit(Standing::Failed { by_itself })));
        };
        if saw_failed {
            fail(false);
        }
        if run != ROOT {
            fail(true);
        }
        let end = if saw_failed { Move::Accepts(run) } else { Move::Ends(run) };
        moves.push((end, commit(Standing::Gone)));
    }

    /// The parent check after the end or the failure of a child, and a sweep that does the same.
    fn wake(&self, state: &State, run: usize, moves: &mut Moves) {
        let here = &state.runs[run];
        let Some(look) = here.look else {
            let finds = here.standing == Standing::Waiting && !state.has_unfinished_below(run);
            if here.gathered || self.sweeps && finds {
                let looks = state.change(|next| {
                    next.runs[run].gathered = false;
                    let saw_failed = state.has_failed_below(run);
                    next.runs[run].look = finds.then_some(Look { has_epoch: true, saw_failed });
                });
                moves.push((Move::Looks(run), looks));
            }
            return;
        };
        if here.lock.is_some() {
            return;
        }
        let is_the_same = look.has_epoch || self.fault == Some(Fault::WakeComparesNoEpoch);
        let mut woken = state.change(|next| next.runs[run].look = None);
        if here.standing == Standing::Waiting && is_the_same {
            let claimed = woken.change(|next| next.claim(run, look.saw_failed));
            moves.push((Move::WakesAndClaims(run), claimed));
            woken.runs[run].standing = Standing::Ready;
        }
        moves.push((Move::Wakes(run), woken));
    }

    /// An owner that is presumed dead, and its late settlement.
    fn reap(&self, state: &State, run: usize, moves: &mut Moves) {
        let here = &state.runs[run];
        let runs = matches!(here.standing, Standing::Running { settles: false, .. });
        if self.dies && runs && here.lock.is_none() && state.stale.is_none() {
            let reaped = state.change(|next| {
                next.runs[run].renew(Standing::Ready);
                next.stale = Some(run);
            });
            moves.push((Move::Reaps(run), reaped));
        }
        if state.stale == Some(run) {
            let settled = state.change(|next| {
                next.stale = None;
                if runs && self.fault == Some(Fault::SettlesWithoutFence) {
                    next.wrong = Some(OWNER_SETTLES);
                }
            });
            moves.push((Move::SettlesLate(run), settled));
        }
    }

    /// The transaction of a decision.
    fn operate(&self, state: &State, moves: &mut Moves) {
        match state.operator {
            Operator::Idle => {
                for target in (0..RUNS).filter(|run| state.runs[*run].is_there()) {
                    let begun = state.change(|next| next.operator = Operator::Locks { target, locked: 0 });
                    moves.push((Move::Begins { target }, begun));
                }
            }
            Operator::Locks { target, locked } => self.lock(state, target, locked, moves),
            Operator::Decided { target, writes } => {
                let is_locked = |run: usize| matches!(state.runs[run].lock, Some(Lock::Settlement(_)));
                if !(0..RUNS).any(|run| writes[run].is_some() && is_locked(run)) {
                    let committed = state.change(|next| self.write(next, target, &writes));
                    moves.push((Move::Commits, committed));
                }
            }
        }
    }

    /// Locks the next row of the lineage. When it has all of them, it reads and decides.
    fn lock(&self, state: &State, target: usize, locked: usize, moves: &mut Moves) {
        let mut lineage = lineage_of(target);
        match self.fault {
            Some(Fault::LocksNoLineage) => lineage.clear(),
            Some(Fault::LocksLeafFirst) => lineage.reverse(),
            _ => {}
        }
        if let Some(run) = lineage.get(locked).copied() {
            if state.runs[run].lock.is_none() {
                let locks = state.change(|next| {
                    next.operator = Operator::Locks { target, locked: locked + 1 };
                    next.runs[run].lock = state.runs[run].is_there().then_some(Lock::Decision);
                });
                moves.push((Move::LocksLineage(run), locks));
            }
            return;
        }
        for decision in [Decision::Retry, Decision::Skip, Decision::Resolve] {
            let read = match self.decide(state, target, decision) {
                Some(writes) => {
                    let decided = Operator::Decided { target, writes };
                    (Move::Reads(decision), state.change(|next| next.operator = decided))
                }
                None => (Move::Refuses(decision), state.change(State::end_decision)),
            };
            moves.push(read);
        }
    }

    /// What is to be written, as a snapshot shows it. Nothing if the decision is refused.
    fn decide(&self, state: &State, target: usize, decision: Decision) -> Option<Writes> {
        let mut below: Vec<_> = state.below(target).collect();
        below.extend(state.below(target).flat_map(|child| state.below(child)));
        let fails = |run: &usize| state.runs[*run].is_failed();
        let failed_below = decision == Decision::Retry && !below.is_empty();
        if !fails(&target) || !below.iter().all(fails) || failed_below {
            return None;
        }
        let mut writes = [None; RUNS];
        match decision {
            Decision::Resolve => below.iter().for_each(|run| writes[*run] = Some(Write::Ends)),
            Decision::Skip if self.fault == Some(Fault::SkipsWithoutDetaching) => {}
            Decision::Retry | Decision::Skip => {
                state.below(target).for_each(|run| writes[run] = Some(Write::Detached));
            }
        }
        let ends = decision == Decision::Resolve;
        writes[target] = Some(if ends { Write::Ends } else { Write::GoesOn });
        let stays_failed = |by_itself| match self.fault {
            Some(Fault::AncestorsStayFailed) => true,
            Some(Fault::RevivesWhoGaveUp) => false,
            _ => by_itself,
        };
        for run in std::iter::successors(state.above(target), |run| state.above(*run)) {
            match state.runs[run].standing {
                Standing::Failed { by_itself } if stays_failed(by_itself) => break,
                Standing::Failed { .. } => writes[run] = Some(Write::WaitsAgain),
                Standing::Waiting => {
                    let keeps_epoch = match self.fault {
                        Some(Fault::WaitingKeepsEpoch) => true,
                        Some(Fault::WaitingKeepsEpochIfResolved) => ends && PARENTS[target] == Some(run),
                        _ => false,
                    };
                    writes[run] = (!keeps_epoch).then_some(Write::KeepsWaiting);
                    break;
                }
                _ if self.fault == Some(Fault::IgnoresRunningParent) => break,
                // It is about to record that it failed because of the run below, or that it accepts this.
                Standing::Ready | Standing::Running { .. } => return None,
                Standing::Gone => unreachable!("a run that goes has no run below"),
            }
        }
        Some(writes)
    }

    /// Each statement changes only rows that are still in the state that was read.
    fn write(&self, next: &mut State, target: usize, writes: &Writes) {
        let writes = writes.iter().enumerate().filter_map(|(run, write)| Some((run, (*write)?)));
        for (run, write) in writes {
            match (write, next.runs[run].standing) {
                (Write::GoesOn, Standing::Failed { .. }) => {
                    next.runs[run].renew(Standing::Ready);
                }
                (Write::WaitsAgain, Standing::Failed { by_itself }) => {
                    if by_itself {
                        next.wrong = Some(REST_UNTIL_DECIDED);
                    }
                    next.runs[run].renew(Standing::Waiting);
                }
                (Write::KeepsWaiting, Standing::Waiting) => next.runs[run].raise_epoch(),
                (Write::Detached, Standing::Failed { .. }) => next.runs[run].attached = false,
                (Write::Ends, Standing::Failed { .. }) => {
                    let is_told = !self.sweeps && self.fault != Some(Fault::ResolvesWithoutWake);
                    next.finish(run, Standing::Gone, is_told);
                }
                _ => {}
            }
        }
        if next.runs[target].standing == Standing::Ready && next.has_failed_below(target) {
            next.wrong = Some(NO_STEP_TOO_EARLY);
        }
        next.end_decision();
    }
}

impl Model for Repair {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        let standings = [Standing::Waiting, Standing::Waiting, Standing::Ready, Standing::Ready];
        State { runs: standings.map(Run::new), operator: Operator::Idle, stale: None, wrong: None }
    }

    fn moves(&self, state: &State) -> Moves {
        let mut moves = vec![];
        for run in 0..RUNS {
            self.execute(state, run, &mut moves);
            self.wake(state, run, &mut moves);
            self.reap(state, run, &mut moves);
        }
        self.operate(state, &mut moves);
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        match a_move {
            Move::Accepts(_) | Move::Reaps(_) | Move::Fails { by_itself: true, .. } => true,
            Move::Reads(decision) => decision != Decision::Retry,
            Move::Begins { .. } => !self.is_retried,
            _ => false,
        }
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let early = |run: usize| match state.runs[run].standing {
            Standing::Ready | Standing::Running { .. } => state.has_unfinished_below(run),
            Standing::Gone => state.below(run).next().is_some(),
            Standing::Waiting | Standing::Failed { .. } => false,
        };
        let unfounded = |run: usize| {
            state.runs[run].standing == Standing::Failed { by_itself: false }
                && (state.has_unfinished_below(run) || !state.has_failed_below(run))
        };
        let early = (0..RUNS).any(early).then_some(NO_STEP_TOO_EARLY);
        state.wrong.or(early).or((0..RUNS).any(unfounded).then_some(FAILED_FOR_A_REASON))
    }

    fn is_at_rest(&self, state: &State) -> bool {
        let rests = |run: &Run| !run.is_there() || run.is_failed() && !self.is_retried;
        state.operator == Operator::Idle && state.runs.iter().all(rests)
    }
}

const WITHOUT_OPERATOR: Repair = Repair { sweeps: true, dies: false, is_retried: false, fault: None };
const RETRIED: Repair = Repair { is_retried: true, ..WITHOUT_OPERATOR };

#[test]
fn failed_rollbacks_rest_without_an_operator() {
    holds("failed rollbacks", &WITHOUT_OPERATOR);
    holds("failed rollbacks without sweeps", &Repair { sweeps: false, ..WITHOUT_OPERATOR });
    holds("failed rollbacks with deaths", &Repair { dies: true, ..WITHOUT_OPERATOR });
}

#[test]
fn failed_rollbacks_end_if_they_are_retried() {
    holds("retried rollbacks", &RETRIED);
    holds("retried rollbacks without sweeps", &Repair { sweeps: false, ..RETRIED });
}

#[test]
fn every_fault_in_repair_is_detected() {
    let of = |fault| Repair { fault: Some(fault), ..WITHOUT_OPERATOR };
    violates("locks no lineage", &of(Fault::LocksNoLineage), NO_STEP_TOO_EARLY);
    violates("locks leaf first", &of(Fault::LocksLeafFirst), COMES_TO_REST);
    violates("ignores a running parent", &of(Fault::IgnoresRunningParent), NO_STEP_TOO_EARLY);
    violates("a wake-up compares no epoch", &of(Fault::WakeComparesNoEpoch), NO_STEP_TOO_EARLY);
    violates("a waiting run keeps its epoch", &of(Fault::WaitingKeepsEpoch), NO_STEP_TOO_EARLY);
    violates("resolution keeps the epoch", &of(Fault::WaitingKeepsEpochIfResolved), FAILED_FOR_A_REASON);
    violates("ancestors stay failed", &of(Fault::AncestorsStayFailed), FAILED_FOR_A_REASON);
    violates("revives who gave up", &of(Fault::RevivesWhoGaveUp), REST_UNTIL_DECIDED);
    let unheard = Repair { sweeps: false, ..of(Fault::ResolvesWithoutWake) };
    violates("resolves without a wake-up", &unheard, COMES_TO_REST);
    violates("skips without detaching", &of(Fault::SkipsWithoutDetaching), NO_STEP_TOO_EARLY);
    let deadly = Repair { dies: true, ..of(Fault::SettlesWithoutFence) };
    violates("settles without fence", &deadly, OWNER_SETTLES);
}
