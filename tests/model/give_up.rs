//! A hierarchy that is cancelled, or misses its deadline, while its runs settle, launch, fail and are claimed.
//!
//! A root launches a child, which launches a grandchild; each then has one more step. A root that rolls back launches a
//! helper in its compensation, which belongs to the rollback. A cancellation is one transaction of several statements
//! (`run_mark_cancelled.sql` until it finds none, `run_delete_pending.sql`), each with a snapshot of its own.
//! `run_mark_overdue.sql` is a transaction of one statement. A statement that changes a row waits for the transaction
//! that has changed it before, and then looks at the row again. A claim skips locked rows. Waking is a model of its
//! own: here a parent whose children have all ended may be woken at any time, or commit with that if it has no step
//! left.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const OBEYED: &str = "no forward step is settled once the run visibly has to give up";
const NOBODY_LIVES_ON: &str = "once a cancellation is committed, all descendants give up";
const SHIELDED: &str = "a run that belongs to a rollback is not cancelled";
const NO_STEP_TOO_EARLY: &str = "no step starts before all children have ended (I1)";
const WHO_BEGAN_ENDS: &str = "no run is dropped that has begun (I8)";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Only the claim checks whether a run has to give up.
    SettlesBlindly,
    /// A settlement checks before it has the lock.
    LooksBeforeLocking,
    /// A cancellation marks only the rows of its first snapshot.
    MarksOnce,
    /// A cancellation stops when a statement has marked none of the rows that it saw.
    StopsWhenNoneIsMarked,
    /// A cancellation also marks runs that belong to a rollback.
    NoShield,
    /// A run that rolls back because of a request is still marked.
    StaysAsked,
    /// Neither a claim nor a refused settlement reports that the run has to give up.
    NobodyTells,
    /// A run without a step left commits when it wakes, even if it has to give up.
    EndsBlindly,
    /// A run that had not begun in the snapshot is dropped, even if it has begun since.
    DropsTheBegun,
    /// The statement that marks an overdue parent also wakes it, if the snapshot lets it drop all children.
    WakesTheOverdue,
}

/// The events that may happen.
struct GiveUp {
    cancels: bool,
    has_deadline: bool,
    /// How many steps may fail on their own.
    failures: u8,
    /// How many cancellations may die before their commit.
    deaths: u8,
    fault: Option<Fault>,
}

const ROOT: usize = 0;
const CHILD: usize = 1;
/// Number 2 is the grandchild.
const HELPER: usize = 3;
const RUNS: usize = 4;

const PARENTS: [Option<usize>; RUNS] = [None, Some(ROOT), Some(CHILD), Some(ROOT)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    Absent,
    Ready,
    Running(Phase),
    Waiting,
    /// It failed, and its parent does not know yet.
    Ended,
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Executing its step or its compensation.
    Working,
    /// It knows that it has to give up.
    GivingUp,
    /// It has made that check and waits for the lock: only with a fault.
    Looked { fails: bool },
}

/// The uncommitted change that locks a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lock {
    Settlement { fails: bool },
    CommittingWake,
    Cancellation { drops: bool },
    Overdue { drops: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Run {
    standing: Standing,
    begun: bool,
    step: u8,
    giving_up: bool,
    /// It is part of a rollback.
    undoing: bool,
    lock: Option<Lock>,
}

/// Rows of the statement's snapshot that it has still to look at.
type Rows = [bool; RUNS];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cancellation {
    NotYet,
    Marking { rows: Rows, found: bool },
    Dropping { rows: Rows },
    Committed,
}

/// The overdue statement: its run, and the children that it has still to drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Overdue {
    run: usize,
    rows: Rows,
    all_dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    runs: [Run; RUNS],
    cancellation: Cancellation,
    overdue: Option<Overdue>,
    /// The deadline has passed.
    late: bool,
    failures: u8,
    deaths: u8,
    /// A property that a move violated.
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Claims(usize),
    Looks { run: usize, fails: bool },
    Writes { run: usize, fails: bool },
    Refused(usize),
    Commits(usize),
    Wakes(usize),
    Ends(usize),
    Cancels,
    Marks(usize),
    MarksAgain,
    Drops(usize),
    CommitsCancellation,
    CancellationDies,
    Passes,
    FindsOverdue(usize),
    DropsOverdue(usize),
    CommitsOverdue,
    Deadlock,
}

type Moves = Vec<(Move, State)>;

impl Run {
    const ABSENT: Self = Self {
        standing: Standing::Absent,
        begun: false,
        step: 0,
        giving_up: false,
        undoing: false,
        lock: None,
    };

    fn is_there(&self) -> bool {
        !matches!(self.standing, Standing::Absent | Standing::Gone)
    }

    fn is_unfinished(&self) -> bool {
        self.is_there() && self.standing != Standing::Ended
    }

    fn is_marked(&self) -> bool {
        self.giving_up || matches!(self.lock, Some(Lock::Cancellation { .. }))
    }
}

fn children_of(parent: usize) -> impl Iterator<Item = usize> {
    (0..RUNS).filter(move |run| PARENTS[*run] == Some(parent))
}

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = *self;
        change(&mut next);
        next
    }

    fn has_to_give_up(&self, run: usize) -> bool {
        let run = &self.runs[run];
        run.giving_up || self.late && !run.undoing
    }

    fn waits_without_unfinished_child(&self, run: usize) -> bool {
        self.runs[run].standing == Standing::Waiting
            && !children_of(run).any(|child| self.runs[child].is_unfinished())
    }

    fn has_failed_child(&self, run: usize) -> bool {
        children_of(run).any(|child| self.runs[child].standing == Standing::Ended)
    }

    fn launch(&mut self, run: usize, undoing: bool) {
        self.runs[run] = Run { standing: Standing::Ready, undoing, ..Run::ABSENT };
    }

    /// Commits a settlement of a forward step, or of a compensation.
    fn settle(&mut self, run: usize, fails: bool, fault: Option<Fault>) {
        self.runs[run].lock = None;
        // The run knows since its claim which of its children failed.
        for child in children_of(run) {
            if self.runs[child].standing == Standing::Ended {
                self.runs[child].standing = Standing::Gone;
            }
        }
        let ended = if PARENTS[run].is_some() { Standing::Ended } else { Standing::Gone };
        let here = &mut self.runs[run];
        let forward = !here.undoing || run == HELPER;
        match (forward, fails) {
            (true, true) => {
                here.undoing = true;
                here.giving_up &= fault == Some(Fault::StaysAsked);
                let undoes = run == ROOT && here.step > 0;
                here.standing = if undoes { Standing::Running(Phase::Working) } else { ended };
                here.step = 0;
            }
            (true, false) => {
                if !here.undoing && self.has_to_give_up(run) && self.runs[run].giving_up {
                    self.wrong = Some(OBEYED);
                }
                let launches = (run == ROOT || run == CHILD) && self.runs[run].step == 0;
                self.runs[run].step += 1;
                self.runs[run].standing = if launches { Standing::Waiting } else { Standing::Gone };
                if launches {
                    self.launch(run + 1, false);
                }
            }
            (false, false) if here.step == 0 => {
                (here.step, here.standing) = (1, Standing::Waiting);
                self.launch(HELPER, true);
            }
            (false, _) => here.standing = ended,
        }
    }
}

impl GiveUp {
    /// Moves of a run, apart from cancellation and deadline.
    fn run(&self, state: &State, run: usize, moves: &mut Moves) {
        let here = &state.runs[run];
        match (here.standing, here.lock) {
            // A claim skips a locked row.
            (Standing::Ready, None) => {
                let asked = state.has_to_give_up(run) && self.fault != Some(Fault::NobodyTells);
                let phase = if asked { Phase::GivingUp } else { Phase::Working };
                let claimed = state.change(|next| {
                    (next.runs[run].standing, next.runs[run].begun) = (Standing::Running(phase), true);
                });
                moves.push((Move::Claims(run), claimed));
            }
            (Standing::Running(_), Some(Lock::Settlement { fails })) => {
                let settled = state.change(|next| next.settle(run, fails, self.fault));
                moves.push((Move::Commits(run), settled));
            }
            (Standing::Running(phase), lock) => self.write(state, run, (phase, lock.is_none()), moves),
            (Standing::Waiting, None) if state.waits_without_unfinished_child(run) => {
                let woken = state.change(|next| next.runs[run].standing = Standing::Ready);
                moves.push((Move::Wakes(run), woken));
                let asked = state.has_to_give_up(run) && self.fault != Some(Fault::EndsBlindly);
                if !here.undoing && !asked && !state.has_failed_child(run) {
                    let ending = state.change(|next| next.runs[run].lock = Some(Lock::CommittingWake));
                    moves.push((Move::Ends(run), ending));
                }
            }
            (Standing::Waiting, Some(Lock::CommittingWake)) => {
                let ended = state.change(|next| next.settle(run, false, self.fault));
                moves.push((Move::Commits(run), ended));
            }
            _ => {}
        }
    }

    /// A settlement locks the row and checks whether the run has to give up by now.
    fn write(&self, state: &State, run: usize, (phase, free): (Phase, bool), moves: &mut Moves) {
        let must_fail = phase == Phase::GivingUp || state.has_failed_child(run);
        let may_fail = must_fail || state.failures > 0 && !state.runs[run].undoing;
        let has_looked = matches!(phase, Phase::Looked { .. });
        let stand = |phase| state.change(|next| next.runs[run].standing = Standing::Running(phase));
        let outcomes = match phase {
            Phase::Looked { fails } => vec![fails],
            _ => [(!must_fail).then_some(false), may_fail.then_some(true)].into_iter().flatten().collect(),
        };
        for fails in outcomes {
            let is_void = !fails && state.has_to_give_up(run) && !has_looked;
            let refused = is_void && self.fault != Some(Fault::SettlesBlindly);
            if self.fault == Some(Fault::LooksBeforeLocking) && !has_looked && !refused {
                moves.push((Move::Looks { run, fails }, stand(Phase::Looked { fails })));
            } else if refused && free {
                let is_told = self.fault != Some(Fault::NobodyTells);
                let phase = if is_told { Phase::GivingUp } else { Phase::Working };
                moves.push((Move::Refused(run), stand(phase)));
            } else if free {
                let mut written = stand(Phase::Working);
                written.failures -= u8::from(fails && !must_fail);
                written.runs[run].lock = Some(Lock::Settlement { fails });
                moves.push((Move::Writes { run, fails }, written));
            }
        }
    }

    /// The transaction of a cancellation, statement by statement and row by row.
    fn cancel(&self, state: &State, moves: &mut Moves) {
        match state.cancellation {
            Cancellation::NotYet => {
                let begun = state.change(|next| next.cancellation = self.mark(state));
                moves.push((Move::Cancels, begun));
                return;
            }
            Cancellation::Marking { rows, found } => self.mark_rows(state, rows, found, moves),
            Cancellation::Dropping { rows } => self.drop_rows(state, rows, moves),
            Cancellation::Committed => return,
        }
        if state.deaths > 0 {
            let died = state.change(|next| {
                next.deaths -= 1;
                next.roll_back_cancellation();
            });
            moves.push((Move::CancellationDies, died));
        }
    }

    /// The rows that a marking statement sees.
    fn mark(&self, state: &State) -> Cancellation {
        let shielded = |run: &Run| run.undoing && self.fault != Some(Fault::NoShield);
        let rows = state.runs.map(|run| run.is_there() && !run.is_marked() && !shielded(&run));
        let found = rows.contains(&true) && self.fault != Some(Fault::StopsWhenNoneIsMarked);
        Cancellation::Marking { rows, found }
    }

    fn mark_rows(&self, state: &State, rows: Rows, found: bool, moves: &mut Moves) {
        for run in (0..RUNS).filter(|run| rows[*run]) {
            let here = &state.runs[run];
            if here.lock.is_some() {
                continue;
            }
            let marked = state.change(|next| {
                let shielded = here.undoing && self.fault != Some(Fault::NoShield);
                let marks = here.is_there() && !here.giving_up && !shielded;
                let mut rows = rows;
                rows[run] = false;
                next.cancellation = Cancellation::Marking { rows, found: found || marks };
                if marks {
                    next.runs[run].lock = Some(Lock::Cancellation { drops: false });
                }
            });
            moves.push((Move::Marks(run), marked));
        }
        if !rows.contains(&true) {
            let next = state.change(|next| {
                next.cancellation = match found && self.fault != Some(Fault::MarksOnce) {
                    true => self.mark(state),
                    false => Cancellation::Dropping { rows: self.drop(state) },
                };
            });
            moves.push((Move::MarksAgain, next));
        }
    }

    /// The rows that the dropping statement sees.
    fn drop(&self, state: &State) -> Rows {
        std::array::from_fn(|run| {
            let asked = PARENTS[run].is_some_and(|parent| state.runs[parent].is_marked());
            let here = &state.runs[run];
            here.is_there() && !here.begun && !here.undoing && asked
        })
    }

    fn drop_rows(&self, state: &State, rows: Rows, moves: &mut Moves) {
        for run in (0..RUNS).filter(|run| rows[*run]) {
            let here = &state.runs[run];
            if matches!(here.lock, None | Some(Lock::Cancellation { .. })) {
                let dropped = state.change(|next| {
                    let mut rows = rows;
                    rows[run] = false;
                    next.cancellation = Cancellation::Dropping { rows };
                    if here.is_there() && (!here.begun || self.fault == Some(Fault::DropsTheBegun)) {
                        next.runs[run].lock = Some(Lock::Cancellation { drops: true });
                    }
                });
                moves.push((Move::Drops(run), dropped));
            }
        }
        if !rows.contains(&true) {
            let committed = state.change(|next| {
                next.cancellation = Cancellation::Committed;
                for run in 0..RUNS {
                    if let Some(Lock::Cancellation { drops }) = next.runs[run].lock {
                        next.give_up(run, drops);
                    }
                }
                let lives_on = |run: &Run| run.is_there() && !run.giving_up && !run.undoing;
                if next.runs.iter().any(lives_on) {
                    next.wrong = Some(NOBODY_LIVES_ON);
                }
            });
            moves.push((Move::CommitsCancellation, committed));
        }
    }

    /// The deadline passes, and the overdue statement runs.
    fn pass(&self, state: &State, moves: &mut Moves) {
        if !state.late {
            moves.push((Move::Passes, state.change(|next| next.late = true)));
            return;
        }
        let Some(overdue) = state.overdue else {
            for run in 0..RUNS {
                let here = &state.runs[run];
                let waits = here.standing == Standing::Waiting && !here.giving_up && !here.undoing;
                if waits && here.lock.is_none() {
                    let found = state.change(|next| {
                        next.runs[run].lock = Some(Lock::Overdue { drops: false });
                        let is_child = |child: usize| PARENTS[child] == Some(run);
                        let unbegun = |child: usize| {
                            is_child(child) && state.runs[child].is_there() && !state.runs[child].begun
                        };
                        let others = |child: usize| is_child(child) && state.runs[child].is_unfinished();
                        let rows = std::array::from_fn(unbegun);
                        let all_dropped = (0..RUNS).all(|child| !others(child) || rows[child]);
                        next.overdue = Some(Overdue { run, rows, all_dropped });
                    });
                    moves.push((Move::FindsOverdue(run), found));
                }
            }
            return;
        };
        self.drop_overdue(state, overdue, moves);
    }

    fn drop_overdue(&self, state: &State, overdue: Overdue, moves: &mut Moves) {
        for run in (0..RUNS).filter(|run| overdue.rows[*run]) {
            let here = &state.runs[run];
            if here.lock.is_none() {
                let dropped = state.change(|next| {
                    let mut rows = overdue.rows;
                    rows[run] = false;
                    next.overdue = Some(Overdue { rows, ..overdue });
                    if here.is_there() && (!here.begun || self.fault == Some(Fault::DropsTheBegun)) {
                        next.runs[run].lock = Some(Lock::Overdue { drops: true });
                    }
                });
                moves.push((Move::DropsOverdue(run), dropped));
            }
        }
        if !overdue.rows.contains(&true) {
            let committed = state.change(|next| {
                next.overdue = None;
                for run in 0..RUNS {
                    if let Some(Lock::Overdue { drops }) = next.runs[run].lock {
                        next.give_up(run, drops);
                    }
                }
                if self.fault == Some(Fault::WakesTheOverdue) && overdue.all_dropped {
                    next.runs[overdue.run].standing = Standing::Ready;
                }
            });
            moves.push((Move::CommitsOverdue, committed));
        }
        // The statement has locked the parent and wants the child; a cancellation has the child and wants the
        // parent.
        let is_held = |run: usize| matches!(state.runs[run].lock, Some(Lock::Cancellation { .. }));
        if (0..RUNS).any(|run| overdue.rows[run] && is_held(run)) {
            let given_in = state.change(|next| {
                next.overdue = None;
                let mine = next.runs.iter_mut().filter(|run| matches!(run.lock, Some(Lock::Overdue { .. })));
                mine.for_each(|run| run.lock = None);
            });
            moves.push((Move::Deadlock, given_in));
        }
    }
}

impl State {
    fn give_up(&mut self, run: usize, drops: bool) {
        let here = &mut self.runs[run];
        here.lock = None;
        here.giving_up = true;
        if drops {
            if here.begun {
                self.wrong = Some(WHO_BEGAN_ENDS);
            }
            self.runs[run] = Run { standing: Standing::Gone, ..Run::ABSENT };
        }
    }

    fn roll_back_cancellation(&mut self) {
        self.cancellation = Cancellation::NotYet;
        let mine = self.runs.iter_mut().filter(|run| matches!(run.lock, Some(Lock::Cancellation { .. })));
        mine.for_each(|run| run.lock = None);
    }
}

impl Model for GiveUp {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        let mut runs = [Run::ABSENT; RUNS];
        runs[ROOT].standing = Standing::Ready;
        State {
            runs,
            cancellation: Cancellation::NotYet,
            overdue: None,
            late: false,
            failures: self.failures,
            deaths: self.deaths,
            wrong: None,
        }
    }

    fn moves(&self, state: &State) -> Moves {
        let mut moves = vec![];
        for run in 0..RUNS {
            self.run(state, run, &mut moves);
        }
        if self.cancels {
            self.cancel(state, &mut moves);
        }
        if self.has_deadline {
            self.pass(state, &mut moves);
        }
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        matches!(a_move, Move::CancellationDies | Move::Cancels | Move::Passes)
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let runs = || state.runs.iter().enumerate();
        let early = |(at, run): (usize, &Run)| {
            let goes_on = matches!(run.standing, Standing::Ready | Standing::Running(_));
            goes_on && children_of(at).any(|child| state.runs[child].is_unfinished())
        };
        if state.runs[HELPER].giving_up || runs().any(|(_, run)| run.undoing && run.giving_up) {
            return Some(SHIELDED);
        }
        state.wrong.or(runs().any(early).then_some(NO_STEP_TOO_EARLY))
    }

    fn is_at_rest(&self, state: &State) -> bool {
        !state.runs.iter().any(Run::is_there)
    }
}

const CANCELLED: GiveUp = GiveUp { cancels: true, has_deadline: false, failures: 1, deaths: 1, fault: None };
const OVERDUE: GiveUp = GiveUp { cancels: false, has_deadline: true, failures: 1, deaths: 0, fault: None };

#[test]
fn run_that_has_to_give_up_comes_to_rest() {
    holds("cancelled", &CANCELLED);
    holds("overdue", &OVERDUE);
    holds("cancelled and overdue", &GiveUp { has_deadline: true, deaths: 0, ..CANCELLED });
}

#[test]
fn every_fault_in_giving_up_is_detected() {
    let cancelled = |fault| GiveUp { fault: Some(fault), ..CANCELLED };
    let overdue = |fault| GiveUp { fault: Some(fault), ..OVERDUE };
    violates("settles blindly", &cancelled(Fault::SettlesBlindly), OBEYED);
    violates("looks before locking", &cancelled(Fault::LooksBeforeLocking), OBEYED);
    violates("marks once", &cancelled(Fault::MarksOnce), NOBODY_LIVES_ON);
    let both = GiveUp { has_deadline: true, ..cancelled(Fault::StopsWhenNoneIsMarked) };
    violates("stops when none is marked", &both, NOBODY_LIVES_ON);
    violates("no shield", &cancelled(Fault::NoShield), SHIELDED);
    violates("stays asked", &cancelled(Fault::StaysAsked), SHIELDED);
    let obedient = GiveUp { failures: 0, ..cancelled(Fault::NobodyTells) };
    violates("no report of giving up", &obedient, COMES_TO_REST);
    violates("ends blindly", &cancelled(Fault::EndsBlindly), OBEYED);
    violates("drops the begun", &overdue(Fault::DropsTheBegun), WHO_BEGAN_ENDS);
    violates("wakes the overdue", &overdue(Fault::WakesTheOverdue), NO_STEP_TOO_EARLY);
}
