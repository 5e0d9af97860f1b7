//! A small tree of runs, any part of which may fail, forward or during its rollback.
//!
//! The code of the program decides what each run does next and what follows: the model calls `scoop_core`. The
//! model itself covers what the statements add (`scoop.settle`, `run_claim.sql`, `run_history.sql`): which
//! run waits for which, which rollbacks are requested, whose failure stays until its parent has taken note.
//! Between two moves of a run only its row and its recorded events remain. A claim, the code that it leads to
//! and the settlement are one move here. The other models cover what happens between them.

use std::hash::{Hash, Hasher};

use scoop_core::{
    Action, Call, ChildFailure, Conclusion, Continuation, Definition, Emission, EventKind, Failure, Fate,
    Instance, Lineage, Next, Path, Plan, Returned, RollbackNames, RollbackProgress, Run, StepDefinition,
    Suspension,
};
use uuid::Uuid;

use crate::check::{Model, holds, violates};

const NO_STEP_TOO_EARLY: &str = "no step starts before all children have ended (I1)";
const ONE_RESULT: &str = "one SEEN, one COMMITTED, one result of a rollback for each run (I3)";
const IN_REVERSE: &str = "compensations run in reverse, children first (I4)";
const UNDONE_ONCE: &str = "each compensation takes effect once (I5)";
const NO_FAILURE_LOST: &str = "no failure is lost (I8)";
const RESTS_WELL: &str = "at rest all is committed, or undone, or recorded as rollback failed (I9)";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A rollback is also requested of runs that have already rolled back.
    TellsEverybody,
    /// A rollback is requested of only one handler of a message.
    TellsOne,
    /// The run does not wait for the rollbacks that it requested.
    TellsWithoutWaiting,
    /// The first child that ends wakes its parent.
    WakesAtTheFirst,
    /// A failed run leaves at once.
    NobodyTakesNote,
    /// A claim reports only one of the failed children.
    HearsOfOne,
    /// A run that begins to roll back forgets which rollbacks of children failed.
    ForgetsTheUnrolled,
    /// A rollback is planned in the order of the steps.
    PlansForward,
    /// A run that has just compensated a step begins its rollback again.
    BeginsAgain,
    /// A compensation that failed counts as done.
    CompensatesAnyway,
}

/// The runs. Two handle the message that the root launches in its first step; one of them launches another.
const ROOT: usize = 0;
const LEFT: usize = 1;
const RIGHT: usize = 2;
const LEAF: usize = 3;
/// The root launches it in its second step.
const LATE: usize = 4;
const RUNS: usize = 5;
const PARENTS: [Option<usize>; RUNS] = [None, Some(ROOT), Some(ROOT), Some(LEFT), Some(ROOT)];

static SAGAS: [Definition; RUNS] = [
    Definition::new("root", "launched", const { &[step("a"), step("b")] }),
    Definition::new("left", "of-root", const { &[step("x"), step("y")] }),
    Definition::new("right", "of-root", const { &[step("z")] }),
    Definition::new("leaf", "of-left", const { &[step("w")] }),
    Definition::new("late", "of-root-late", const { &[step("v")] }),
];

/// The root, with a first step that handles the failure of its children and goes on.
static FORGIVING: Definition =
    Definition::new("root", "launched", const { &[step("a").handling_child_failure(), step("b")] });

const fn step(name: &'static str) -> StepDefinition {
    StepDefinition::new(name).compensated()
}

/// The events that may happen.
struct Rollback {
    /// How often user code may fail.
    failures: u8,
    forgives: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    Absent,
    Ready,
    Waiting,
    Ended,
    Gone,
}

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fact {
    kind: &'static str,
    step: String,
    handled: Option<u32>,
    message: Uuid,
    why: String,
}

/// Follows from the recorded events, so it is left out of the comparison of states.
#[derive(Clone, Debug)]
struct Kept<T>(T);

impl<T> PartialEq for Kept<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Kept<T> {}

impl<T> Hash for Kept<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// A run: its row, and its recorded events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Slot {
    standing: Standing,
    begun: bool,
    rollback_requested: bool,
    /// How many of its siblings had begun to roll back before it.
    turned: usize,
    record: Vec<Fact>,
    /// How often each step took effect, and how often it was compensated.
    done: [u8; 2],
    undone: [u8; 2],
    row: Kept<Run>,
    /// Its failure, and the failure of its rollback.
    failed: Kept<(Option<Failure>, Option<Failure>)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    slots: Vec<Slot>,
    /// The texts of all failures.
    broken: Vec<String>,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Records(usize),
    Succeeds(usize),
    Fails(usize),
}

fn message_of(run: usize) -> Uuid {
    Uuid::from_u128(match run {
        ROOT => 100,
        LEFT | RIGHT => 101,
        LEAF => 102,
        _ => 103,
    })
}

/// The children that a run launches in that step.
fn launched_in(parent: usize, step: usize) -> impl Iterator<Item = usize> {
    children_of(parent).filter(move |child| usize::from(*child == LATE) == step)
}

fn children_of(parent: usize) -> impl Iterator<Item = usize> {
    (0..RUNS).filter(move |run| PARENTS[*run] == Some(parent))
}

impl Slot {
    fn new(run: usize) -> Self {
        let ids = match run {
            ROOT => vec![0, 10],
            LEAF => vec![0, 10, 11, 13],
            other => vec![0, 10, 10 + other as u128],
        };
        let lineage = Lineage::from_ids(ids.into_iter().map(Uuid::from_u128).collect());
        let row = Run::new(lineage.expect("it has a root"), message_of(run), &*SAGAS[run].saga);
        Self {
            standing: Standing::Absent,
            begun: false,
            rollback_requested: false,
            turned: 0,
            record: vec![],
            done: [0; 2],
            undone: [0; 2],
            row: Kept(row),
            failed: Kept((None, None)),
        }
    }

    fn has(&self, kind: EventKind) -> bool {
        self.count(kind) > 0
    }

    fn count(&self, kind: EventKind) -> usize {
        self.record.iter().filter(|fact| fact.kind == kind.as_str()).count()
    }

    fn is_unfinished(&self) -> bool {
        matches!(self.standing, Standing::Ready | Standing::Waiting)
    }

    fn is_undone(&self) -> bool {
        self.done == self.undone
    }

    fn note(&mut self, kind: EventKind, why: &str) {
        let message = self.row.0.message;
        self.record.push(Fact {
            kind: kind.as_str(),
            step: String::new(),
            handled: None,
            message,
            why: why.to_owned(),
        });
    }
}

impl State {
    /// Whether the rollback of this run or of a descendant failed.
    fn has_unrolled(&self, run: usize) -> bool {
        self.slots[run].has(EventKind::RollbackFailed)
            || children_of(run).any(|child| self.has_unrolled(child))
    }

    /// Whether this run and its descendants are compensated completely, and none of them is active.
    fn is_undone(&self, run: usize) -> bool {
        let slot = &self.slots[run];
        !slot.is_unfinished() && slot.is_undone() && children_of(run).all(|child| self.is_undone(child))
    }

    fn is_committed(&self, run: usize) -> bool {
        let slot = &self.slots[run];
        let nothing_undone = slot.has(EventKind::Committed) && slot.undone == [0; 2];
        nothing_undone && children_of(run).all(|child| self.is_committed(child))
    }

    /// Compensates a step, and checks that it is its turn.
    fn compensate(&mut self, run: usize, step: usize) {
        let (slot, later) = (&self.slots[run], step + 1..2);
        let steps_first = later.into_iter().all(|later| slot.done[later] == slot.undone[later]);
        let children_first =
            launched_in(run, step).all(|child| self.is_undone(child) || self.has_unrolled(child));
        if !steps_first || !children_first {
            self.wrong = Some(IN_REVERSE);
        }
        self.slots[run].undone[step] += 1;
        if self.slots[run].undone[step] > self.slots[run].done[step] {
            self.wrong = Some(UNDONE_ONCE);
        }
    }
}

impl Rollback {
    fn saga(&self, run: usize) -> &'static Definition {
        if run == ROOT && self.forgives { &FORGIVING } else { &SAGAS[run] }
    }

    /// Claims a run with the state in its row, its failed children and its recorded events.
    fn claim(&self, state: &mut State, run: usize) -> Run {
        let slot = &mut state.slots[run];
        if !std::mem::replace(&mut slot.begun, true) {
            match slot.rollback_requested {
                true => slot.note(EventKind::RollingBack, "requested"),
                false => slot.note(EventKind::Seen, ""),
            }
        }
        let mut claimed = slot.row.0.clone();
        let mut failed: Vec<_> =
            children_of(run).filter(|child| state.slots[*child].standing == Standing::Ended).collect();
        failed.sort_by_key(|child| state.slots[*child].turned);
        if self.fault == Some(Fault::HearsOfOne) {
            failed.truncate(1);
        }
        claimed.failed_children = failed.into_iter().map(|child| failure_of(&state.slots[child])).collect();
        if claimed.needs_plan() {
            self.recall(&state.slots[run], self.saga(run), &mut claimed);
        }
        claimed
    }

    /// Restores the history of a run, as `run_history.sql` reports it.
    fn recall(&self, slot: &Slot, saga: &Definition, run: &mut Run) {
        let names = RollbackNames::of(saga);
        let (mut instances, mut emitted, mut last, mut has_begun) = (vec![], vec![], None, false);
        for fact in &slot.record {
            if fact.kind == EventKind::Emitted.as_str() {
                emitted.push(fact.message);
            } else if fact.kind == EventKind::Suspended.as_str() {
                let (step, handler_iteration) = (fact.step.clone(), fact.handled);
                if names.matches(&step) {
                    has_begun |= handler_iteration.is_none();
                } else {
                    let emitted = std::mem::take(&mut emitted);
                    instances.push(Instance {
                        step: step.clone(),
                        handler_iteration,
                        definition: None,
                        emitted,
                        by_strategy: false,
                        output: None,
                    });
                }
                last = Some(Suspension { step, jump: None, iteration: 0, handler_iteration });
            }
        }
        if self.fault == Some(Fault::PlansForward) {
            instances.reverse();
        }
        let newest = last.as_ref().map_or("", |last: &Suspension| last.step.as_str());
        if self.fault == Some(Fault::BeginsAgain) && newest.ends_with(']') {
            has_begun = false;
        }
        run.set_rollback_plan(Plan::of(&names, instances), RollbackProgress { last, has_begun });
    }

    /// The moves of a run that is ready.
    fn turn(&self, state: &State, run: usize, moves: &mut Vec<(Move, State)>) {
        let mut state = state.clone();
        let claimed = self.claim(&mut state, run);
        let next = |claimed| Continuation::of(self.saga(run), claimed).expect("the definition fits");
        match next(&claimed) {
            Continuation::Record(record) => {
                self.settle(&mut state, run, &claimed, record.conclude());
                moves.push((Move::Records(run), state));
            }
            Continuation::Call(call) => {
                if usize::from(self.failures) > state.broken.len() {
                    moves.push((Move::Fails(run), self.fail(state.clone(), run, &claimed, call)));
                }
                let Continuation::Call(call) = next(&claimed) else {
                    unreachable!("it says the same again");
                };
                moves.push((Move::Succeeds(run), self.succeed(state, run, &claimed, call)));
            }
        }
    }

    fn succeed(&self, mut state: State, run: usize, claimed: &Run, call: Call<'_>) -> State {
        let mut returned = Returned::nothing();
        match *call.action() {
            Action::Invoke { step, .. } => {
                state.slots[run].done[step] += 1;
                returned.next = Some(Next::Continue);
                returned.emissions = launched_in(run, step).take(1).map(emission).collect();
                if children_of(run).any(|child| state.slots[child].is_unfinished()) {
                    state.wrong = Some(NO_STEP_TOO_EARLY);
                }
            }
            Action::Compensate { step, .. } => state.compensate(run, step),
            Action::HandleChildFailure { .. } => {}
        }
        let conclusion = call.conclude(claimed.context.clone(), Ok(returned));
        self.settle(&mut state, run, claimed, conclusion);
        state
    }

    fn fail(&self, mut state: State, run: usize, claimed: &Run, call: Call<'_>) -> State {
        let text = format!("{} broke in {}", claimed.source, call.step());
        state.broken.push(text.clone());
        state.broken.sort();
        let anyway = self.fault == Some(Fault::CompensatesAnyway) && claimed.is_backward();
        let outcome = match anyway {
            true => Ok(Returned::nothing()),
            false => Err(Failure::new("Broken", text, &claimed.source)),
        };
        let conclusion = call.conclude(claimed.context.clone(), outcome);
        self.settle(&mut state, run, claimed, conclusion);
        state
    }

    /// Applies a settlement, as `scoop.settle` does.
    fn settle(&self, state: &mut State, run: usize, before: &Run, conclusion: Conclusion) {
        for event in &conclusion.events {
            state.slots[run].record.push(Fact {
                kind: event.kind.as_str(),
                step: event.step.clone().unwrap_or_default(),
                handled: event.handler_iteration,
                message: event.message,
                why: event.exception.as_ref().map_or(String::new(), Failure::report),
            });
        }
        let mut waits = !conclusion.emissions.is_empty();
        for child in conclusion.emissions.iter().flat_map(|emission| handlers_of(emission.message)) {
            state.slots[child].standing = Standing::Ready;
        }
        for message in &conclusion.rollback_requests {
            let reported = self.tell(state, *message, conclusion.rollback_cause.as_ref());
            waits |= reported && self.fault != Some(Fault::TellsWithoutWaiting);
        }
        self.take_note(state, run, before, &conclusion.fate);
        self.stand(state, run, conclusion.fate, waits);
        if let Some(parent) = PARENTS[run].filter(|_| !state.slots[run].is_unfinished()) {
            let any = self.fault == Some(Fault::WakesAtTheFirst);
            let waits_on = !any && children_of(parent).any(|child| state.slots[child].is_unfinished());
            if state.slots[parent].standing == Standing::Waiting && !waits_on {
                state.slots[parent].standing = Standing::Ready;
            }
        }
    }

    /// Requests the rollback of the handlers of the message, except those that have begun to roll back already.
    fn tell(&self, state: &mut State, message: Uuid, because: Option<&Failure>) -> bool {
        let mut any = false;
        for child in handlers_of(message) {
            let slot = &mut state.slots[child];
            let turned = slot.has(EventKind::RollingBack) && self.fault != Some(Fault::TellsEverybody);
            let enough = any && self.fault == Some(Fault::TellsOne);
            if !slot.has(EventKind::Seen) || turned || enough {
                continue;
            }
            let cause = because.expect("there is a reason").clone();
            (slot.standing, slot.rollback_requested, slot.begun) = (Standing::Ready, true, false);
            slot.row.0.last = None;
            slot.failed.0.0 = Some(cause.clone());
            slot.row.0.path = Path::Backward {
                cause,
                rollback_requested: true,
                begun: false,
                failed_before: false,
                plan: None,
            };
            any = true;
        }
        any
    }

    /// Failed children leave, once their parent has settled its reaction to them.
    fn take_note(&self, state: &mut State, run: usize, before: &Run, fate: &Fate) {
        let keeps_unrolled = match fate {
            Fate::GoesOn(after) => {
                !before.failed_children.is_empty()
                    && !after.failed_children.is_empty()
                    && self.fault != Some(Fault::ForgetsTheUnrolled)
            }
            _ => false,
        };
        for child in children_of(run) {
            let slot = &mut state.slots[child];
            let stays = keeps_unrolled && slot.failed.0.1.is_some();
            if slot.standing == Standing::Ended && !before.failed_children.is_empty() && !stays {
                slot.standing = Standing::Gone;
            }
        }
    }

    fn stand(&self, state: &mut State, run: usize, fate: Fate, waits: bool) {
        let siblings = PARENTS[run].map_or(0, |parent| {
            children_of(parent).filter(|sibling| state.slots[*sibling].has(EventKind::RollingBack)).count()
        });
        let slot = &mut state.slots[run];
        let has_parent = PARENTS[run].is_some() && self.fault != Some(Fault::NobodyTakesNote);
        let ended = |noted| if noted { Standing::Ended } else { Standing::Gone };
        match fate {
            Fate::GoesOn(mut after) => {
                if let Path::Backward { plan, cause, .. } = &mut after.path {
                    *plan = None;
                    slot.failed.0.0 = Some(cause.clone());
                    slot.turned = if slot.turned == 0 { siblings } else { slot.turned };
                }
                slot.standing = if waits { Standing::Waiting } else { Standing::Ready };
                slot.row = Kept(after);
            }
            Fate::Committed => slot.standing = Standing::Gone,
            Fate::RolledBack { cause, rollback_requested } => {
                slot.standing = ended(has_parent && !rollback_requested);
                slot.failed = Kept((Some(cause), None));
            }
            Fate::RollbackFailed { cause, failure, .. } => {
                slot.standing = ended(has_parent);
                slot.failed = Kept((Some(cause), Some(failure)));
            }
        }
    }
}

fn handlers_of(message: Uuid) -> impl Iterator<Item = usize> {
    (0..RUNS).filter(move |run| message_of(*run) == message)
}

fn emission(child: usize) -> Emission {
    Emission {
        message: message_of(child),
        topic: SAGAS[child].topic.to_string(),
        payload: serde_json::Value::Null,
        detached_root: None,
        context: Default::default(),
        required: None,
        wait: None,
        found_by: vec![],
    }
}

fn failure_of(slot: &Slot) -> ChildFailure {
    let (rolled_back, rollback_failed) = slot.failed.0.clone();
    ChildFailure {
        rolled_back: rolled_back.expect("it failed"),
        rollback_failed,
        rollback_requested: slot.rollback_requested,
    }
}

impl Model for Rollback {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        let mut slots: Vec<_> = (0..RUNS).map(Slot::new).collect();
        slots[ROOT].standing = Standing::Ready;
        State { slots, broken: vec![], wrong: None }
    }

    fn moves(&self, state: &State) -> Vec<(Move, State)> {
        let mut moves = vec![];
        for run in (0..RUNS).filter(|run| state.slots[*run].standing == Standing::Ready) {
            self.turn(state, run, &mut moves);
        }
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        matches!(a_move, Move::Fails(_))
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let results = |slot: &Slot| {
            let rollbacks = slot.count(EventKind::RolledBack) + slot.count(EventKind::RollbackFailed);
            [slot.count(EventKind::Seen), slot.count(EventKind::Committed), rollbacks]
        };
        if state.wrong.is_some() {
            return state.wrong;
        }
        if state.slots.iter().any(|slot| results(slot).iter().any(|count| *count > 1)) {
            return Some(ONE_RESULT);
        }
        if state.slots[ROOT].standing != Standing::Gone {
            return None;
        }
        let root = &state.slots[ROOT];
        let forgiven = self.forgives && !state.broken.is_empty() && root.undone == [0; 2];
        let well = if root.has(EventKind::Committed) {
            forgiven || state.is_committed(ROOT)
        } else {
            root.has(EventKind::RollbackFailed)
                || state.is_undone(ROOT)
                || self.forgives && state.has_unrolled(ROOT)
        };
        let reported = |text: &String| root.record.iter().any(|fact| fact.why.contains(text));
        match well {
            false => Some(RESTS_WELL),
            true => (!self.forgives && !state.broken.iter().all(reported)).then_some(NO_FAILURE_LOST),
        }
    }

    fn is_at_rest(&self, state: &State) -> bool {
        !state.slots.iter().any(|slot| slot.is_unfinished() || slot.standing == Standing::Ended)
    }
}

const TWICE: Rollback = Rollback { failures: 2, forgives: false, fault: None };

#[test]
fn tree_is_compensated_in_reverse_after_any_failure() {
    holds("rollback", &Rollback { failures: 1, ..TWICE });
    holds("rollback with two failures", &TWICE);
    holds("rollback with three failures", &Rollback { failures: 3, ..TWICE });
    holds("rollback with a forgiving root", &Rollback { forgives: true, ..TWICE });
}

#[test]
fn every_fault_in_rolling_back_is_detected() {
    let with = |fault| Rollback { fault: Some(fault), ..TWICE };
    violates("requests rollback of all", &with(Fault::TellsEverybody), ONE_RESULT);
    violates("requests rollback of one", &with(Fault::TellsOne), IN_REVERSE);
    violates("does not wait for requested rollbacks", &with(Fault::TellsWithoutWaiting), IN_REVERSE);
    violates("wakes at the first", &with(Fault::WakesAtTheFirst), NO_STEP_TOO_EARLY);
    violates("failed run leaves at once", &with(Fault::NobodyTakesNote), RESTS_WELL);
    violates("hears of one", &with(Fault::HearsOfOne), NO_FAILURE_LOST);
    violates("forgets failed rollbacks", &with(Fault::ForgetsTheUnrolled), RESTS_WELL);
    violates("plans forward", &with(Fault::PlansForward), IN_REVERSE);
    violates("begins again", &with(Fault::BeginsAgain), UNDONE_ONCE);
    violates("compensates anyway", &with(Fault::CompensatesAnyway), IN_REVERSE);
}
