//! Tests that the audit finds violations: good logs, each broken in one place.

use scoop_audit::{
    AwaitedSignal, BegunStep, Effect, EffectKind, EffectPlace, EndedRun, FailedRun, Invariant, Log,
    LoggedEvent, LoggedExecution, LoggedOutput, LoggedSignal, Quiescence, Redelivery, RunOutcome, Tables,
    audit, audit_effects,
};
use scoop_core::{Definition, EventKind, Failure, Lineage, SignalKey};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::driver::{Memory, World, definitions, log, parse};

/// A parent of two children; the second fails, so the parent and both children roll back.
const UNDONE: &str = "
    saga parent on start
      step before [compensated]
      step middle [compensated]: emit child-topic
      step last
    saga first on child-topic
      step work [compensated]
      step more [compensated]
    saga second on child-topic
      step work [compensated]
      step fail: fail \"no\"
    launch start";

/// The same without a failure.
const DONE: &str = "
    saga parent on start
      step before [compensated]
      step middle [compensated]: emit child-topic
      step last
    saga first on child-topic
      step work [compensated]
      step more [compensated]
    saga second on child-topic
      step work [compensated]
    launch start";

/// A child whose requested rollback fails.
const NOT_UNDONE: &str = "
    saga parent on start
      step before [compensated]: emit child-topic
      step last: fail \"no\"
    saga child on child-topic
      step work [compensated]
        undo: fail \"cannot\"
    launch start";

/// Two children that fail.
const TWO_FAIL: &str = "
    saga parent on start
      step only: emit child-topic
    saga first on child-topic
      step work: fail \"one\"
    saga second on child-topic
      step work: fail \"two\"
    launch start";

/// A log to break, and its sagas.
struct Broken {
    log: Log,
    definitions: Vec<Definition>,
}

fn good(script: &str) -> Broken {
    let script = parse(script).unwrap();
    let world = World::play(&script, Memory::Kept);
    let broken = Broken { log: log(&script, &world), definitions: definitions(&script) };
    assert_eq!(
        audit(&broken.log, &broken.definitions, Quiescence::Yes),
        [],
        "the unbroken log has no violations"
    );
    broken
}

impl Broken {
    /// The position of the first row of this kind, handler and step.
    fn at(&self, kind: EventKind, handler: &str, step: &str) -> usize {
        let is_it = |row: &LoggedEvent| {
            row.kind == kind
                && row.handler.as_deref().unwrap_or_default() == handler
                && row.step.as_deref().unwrap_or_default() == step
        };
        self.log.events.iter().position(is_it).expect("there is such a row")
    }

    fn row(&mut self, kind: EventKind, handler: &str, step: &str) -> &mut LoggedEvent {
        let at = self.at(kind, handler, step);
        &mut self.log.events[at]
    }

    fn tables(&mut self) -> &mut Tables {
        self.log.tables.get_or_insert_default()
    }

    fn drop_row(&mut self, kind: EventKind, handler: &str, step: &str) {
        let at = self.at(kind, handler, step);
        self.log.events.remove(at);
    }

    /// Moves one row before another, and renews the times.
    fn move_before(&mut self, from: usize, to: usize) {
        let row = self.log.events.remove(from);
        self.log.events.insert(if from < to { to - 1 } else { to }, row);
        self.new_times();
    }

    /// Removes all rows of a handler.
    fn drop_handler(&mut self, handler: &str) {
        self.log.events.retain(|row| row.handler.as_deref() != Some(handler));
    }

    fn new_times(&mut self) {
        let first = self.log.events[0].at;
        for (row, micros) in self.log.events.iter_mut().zip(0..) {
            row.at = first + Duration::microseconds(micros);
        }
    }

    #[track_caller]
    fn violates(&self, invariant: Invariant) {
        let found = audit(&self.log, &self.definitions, Quiescence::Yes);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert!(found.iter().any(|it| it.invariant == invariant), "{} is not in {texts:#?}", invariant.id());
    }

    /// Asserts that one of the violations contains this text.
    #[track_caller]
    fn is_found(&self, what: &str) {
        let found = audit(&self.log, &self.definitions, Quiescence::Yes);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert!(texts.iter().any(|text| text.contains(what)), "{what} is not in {texts:#?}");
    }

    #[track_caller]
    fn is_not_told(&self, what: &str) {
        let found = audit(&self.log, &self.definitions, Quiescence::Yes);
        let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert!(!texts.iter().any(|text| text.contains(what)), "{what} is in {texts:#?}");
    }
}

use EventKind::{
    CancellationRequested, Committed, Emitted, RollbackEmitted, RollbackFailed, RolledBack, RollingBack,
    Seen, Suspended,
};

#[test]
fn a_parent_that_goes_on_before_its_child_has_ended() {
    let mut broken = good(DONE);
    let (on, end) = (broken.at(Suspended, "parent", "last"), broken.at(Committed, "second", "work"));
    broken.move_before(on, end);
    broken.violates(Invariant::Waits);
}

#[test]
fn a_parent_that_commits_before_its_child_has_ended() {
    let text = "
        saga parent on start
          step only: emit child-topic
        saga child on child-topic
          step work
        launch start";
    let mut broken = good(text);
    let (commit, end) = (broken.at(Committed, "parent", "only"), broken.at(Suspended, "child", "work"));
    broken.move_before(commit, end);
    broken.violates(Invariant::Waits);
}

#[test]
fn a_handler_that_the_parent_did_not_wait_for() {
    let mut broken = good(DONE);
    broken.drop_handler("second");
    broken.violates(Invariant::Waits);
}

#[test]
fn a_handler_that_began_without_a_subscription() {
    let mut broken = good(DONE);
    let subscription =
        broken.log.subscriptions.iter_mut().find(|subscription| subscription.handler == "second").unwrap();
    subscription.since += Duration::hours(1);
    broken.violates(Invariant::Waits);
}

#[test]
fn a_child_that_began_before_its_message_was_out() {
    let mut broken = good(DONE);
    let (seen, emitted) = (broken.at(Seen, "first", ""), broken.at(Suspended, "parent", "middle"));
    broken.move_before(seen, emitted);
    broken.violates(Invariant::Waits);
}

#[test]
fn a_lineage_that_is_not_one_id_below() {
    for lineage in [vec![7], vec![1, 2, 3, 7]] {
        let mut broken = good(DONE);
        let seen = broken.row(Seen, "first", "").lineage.clone();
        let root = seen.root_id();
        let ids = std::iter::once(root).chain(lineage.into_iter().map(Uuid::from_u128)).collect();
        let wrong = Lineage::from_ids(ids).unwrap();
        for row in broken.log.events.iter_mut().filter(|row| row.lineage == seen) {
            row.lineage = wrong.clone();
        }
        broken.violates(Invariant::Lineage);
    }
}

#[test]
fn a_run_that_writes_with_another_lineage() {
    let mut broken = good(DONE);
    let parent = broken.row(Seen, "parent", "").lineage.clone();
    broken.row(Suspended, "first", "work").lineage = parent;
    broken.violates(Invariant::Lineage);
}

#[test]
fn an_event_whose_message_does_not_exist() {
    for kind in [Emitted, Suspended] {
        let mut broken = good(DONE);
        let message = broken.row(kind, "parent", "middle").message;
        broken.log.messages.retain(|known| known.id != message);
        broken.violates(Invariant::Lineage);
    }
}

#[test]
fn two_runs_with_one_id() {
    let mut broken = good(DONE);
    let first = broken.row(Seen, "first", "").lineage.clone();
    let second = broken.row(Seen, "second", "").lineage.clone();
    for row in broken.log.events.iter_mut().filter(|row| row.lineage == second) {
        row.lineage = first.clone();
    }
    broken.violates(Invariant::Lineage);
}

#[test]
fn events_that_may_occur_once_occur_twice() {
    let once = [
        (DONE, Emitted, "parent", "middle"),
        (DONE, Seen, "parent", ""),
        (DONE, Committed, "parent", "last"),
        (UNDONE, RollingBack, "second", "fail"),
        (UNDONE, RolledBack, "parent", "Rollback of before[0,]"),
        (NOT_UNDONE, RollbackFailed, "child", "Rollback of work[0,]"),
        (UNDONE, RollbackEmitted, "parent", "Rollback of middle[0,] (rolling back child scopes)"),
    ];
    for (script, kind, handler, step) in once {
        let mut broken = good(script);
        let at = broken.at(kind, handler, step);
        let row = broken.log.events[at].clone();
        broken.log.events.insert(at + 1, row);
        broken.new_times();
        broken.violates(Invariant::Once);
    }
}

#[test]
fn a_step_that_is_left_out_or_comes_twice() {
    let mut broken = good(DONE);
    broken.drop_row(Suspended, "first", "more");
    broken.violates(Invariant::Once);
    let mut broken = good(DONE);
    let at = broken.at(Suspended, "first", "more");
    let row = broken.log.events[at].clone();
    broken.log.events.insert(at, row);
    broken.new_times();
    broken.violates(Invariant::Once);
}

#[test]
fn a_run_that_commits_during_its_rollback() {
    let mut broken = good(UNDONE);
    let at = broken.at(RolledBack, "parent", "Rollback of before[0,]");
    broken.log.events[at].kind = Committed;
    broken.violates(Invariant::Once);
}

#[test]
fn the_parent_is_compensated_before_its_children() {
    let mut broken = good(UNDONE);
    let own = broken.at(Suspended, "parent", "Rollback of middle[0,]");
    let child = broken.at(RollingBack, "first", "");
    broken.move_before(own, child);
    broken.violates(Invariant::Reverse);
}

#[test]
fn compensations_in_another_order_or_not_at_all() {
    let parts = ["Rollback of more[0,]", "Rollback of work[0,]"];
    let mut broken = good(UNDONE);
    let places = parts.map(|part| broken.at(Suspended, "first", part));
    for (place, part) in places.into_iter().zip(parts.iter().rev()) {
        broken.log.events[place].step = Some((*part).to_owned());
    }
    broken.violates(Invariant::Reverse);
    let mut broken = good(UNDONE);
    broken.drop_row(Suspended, "first", parts[0]);
    broken.violates(Invariant::Reverse);
}

#[test]
fn a_compensation_that_comes_twice() {
    let mut broken = good(UNDONE);
    let at = broken.at(Suspended, "first", "Rollback of work[0,]");
    let row = broken.log.events[at].clone();
    broken.log.events.insert(at, row);
    broken.new_times();
    broken.violates(Invariant::Reverse);
}

#[test]
fn a_child_without_a_rollback_request() {
    let mut broken = good(UNDONE);
    broken.drop_row(RollbackEmitted, "parent", "Rollback of middle[0,] (rolling back child scopes)");
    broken.violates(Invariant::Reverse);
}

#[test]
fn rollback_requests_that_are_missing_or_repeated() {
    let part = "Rollback of middle[0,] (rolling back child scopes)";
    let mut unrequested = good(UNDONE);
    unrequested.drop_row(RollbackEmitted, "parent", part);
    unrequested.is_found("rollback was requested for 0 messages instead of 1");

    let mut again = good(UNDONE);
    let request = again.row(RollbackEmitted, "parent", part).clone();
    let at = again.at(Suspended, "parent", "Rollback of middle[0,]");
    again.log.events.insert(at, request);
    again.new_times();
    again.is_found("rollback was requested for 1 messages instead of 0");
}

#[test]
fn a_committed_child_of_a_parent_that_gave_up_and_then_rolled_back() {
    let text = "
        saga parent on start
          step before [compensated]: emit child-topic
          step last: fail \"no\"
        saga child on child-topic
          step work [compensated]
        launch start";
    let own = "Rollback of before[0,]";
    let done = good(text);
    let undone = done.log.events[done.at(RolledBack, "parent", own)].clone();
    let mut broken = done;
    let turned = broken.at(RollingBack, "child", "");
    let mut at = 0..;
    broken.log.events.retain(|row| at.next() < Some(turned) || row.handler.as_deref() != Some("child"));
    broken.log.events.pop();
    let skipped = broken.log.events.pop().expect("its own part is done");
    let failure = Failure::gave_up("parent[w]", vec![Failure::new("Missed", "m", "s")]);
    let failed = LoggedEvent { kind: RollbackFailed, exception: Some(failure), ..undone.clone() };
    broken.log.events.push(failed);
    broken.new_times();
    let forgotten = "was requested to roll back, and did not";
    broken.is_not_told(forgotten);

    broken.log.events.push(undone.clone());
    broken.new_times();
    broken.is_found(forgotten);
    broken.log.events.pop();
    let identifier = Some(scoop_core::OPERATOR.to_owned());
    broken.log.events.extend([LoggedEvent { identifier, ..skipped }, undone]);
    broken.new_times();
    broken.is_not_told(forgotten);
}

#[test]
fn an_end_of_a_rollback_before_its_time_or_under_another_name() {
    let mut early = good(UNDONE);
    early.drop_row(Suspended, "parent", "Rollback of before[0,]");
    early.is_found("(ROLLED_BACK parent Rollback of before[0,]) where `Rollback of before[0,]` is next");

    let mut named = good(UNDONE);
    named.row(RolledBack, "parent", "Rollback of before[0,]").step = Some("Rollback of middle[0,]".into());
    named.is_found("(ROLLED_BACK parent Rollback of middle[0,]) names another part than the last");

    let mut failed = good(NOT_UNDONE);
    failed.row(RollbackFailed, "child", "Rollback of work[0,]").step = Some("Rollback of other[0,]".into());
    failed.is_found("(ROLLBACK_FAILED child Rollback of other[0,]) where");
}

#[test]
fn a_child_that_ignores_a_rollback_request() {
    let mut broken = good(UNDONE);
    let first = broken.row(Seen, "first", "").lineage.clone();
    let turned = broken.at(RollingBack, "first", "");
    let mut at = 0;
    broken.log.events.retain(|row| {
        at += 1;
        row.lineage != first || at <= turned
    });
    for invariant in [Invariant::Reverse, Invariant::Progress, Invariant::Whole] {
        broken.violates(invariant);
    }
}

#[test]
fn an_emission_without_an_outcome() {
    let mut broken = good(TWO_FAIL);
    let at = broken.at(RollingBack, "parent", "only");
    let mut emitted = broken.log.events[broken.at(Emitted, "parent", "only")].clone();
    emitted.message = Uuid::from_u128(77);
    broken.log.events.insert(at, emitted);
    broken.new_times();
    broken.violates(Invariant::Atomic);
}

#[test]
fn a_run_that_never_ends_or_never_begins() {
    let mut broken = good(DONE);
    broken.log.events.pop();
    broken.violates(Invariant::Progress);
    let mut broken = good(DONE);
    broken.log.events.truncate(1);
    broken.violates(Invariant::Progress);
}

#[test]
fn failures_that_are_missing_repeated_or_in_another_order() {
    let change: [fn(&mut Vec<Failure>); 3] =
        [|causes| drop(causes.pop()), |causes| causes.push(causes[0].clone()), |causes| causes.reverse()];
    for change in change {
        let mut broken = good(TWO_FAIL);
        let failure = broken.row(RollingBack, "parent", "only").exception.as_mut().unwrap();
        let mut causes = failure.causes.to_vec();
        change(&mut causes);
        failure.causes = causes.into();
        broken.violates(Invariant::Failures);
    }
}

#[test]
fn a_failed_child_rollback_that_the_parent_ignores() {
    let mut broken = good(NOT_UNDONE);
    let at = broken.at(RollbackFailed, "parent", "Rollback of before[0,] (rolling back child scopes)");
    let (row, before) = (broken.log.events[at].clone(), at - 1);
    let mut rows = vec![];
    for (kind, step) in [(Suspended, "Rollback of before[0,]"), (RolledBack, "Rollback of before[0,]")] {
        let step = Some(step.to_owned());
        rows.push(LoggedEvent { kind, step, exception: None, handler_iteration: None, ..row.clone() });
    }
    broken.log.events.splice(at.., rows);
    assert_eq!(broken.log.events[before].kind, RollbackFailed, "the row that the parent ignores");
    broken.new_times();
    broken.violates(Invariant::Failures);
}

#[test]
fn a_handled_failure_without_a_failed_child() {
    let mut broken = good(DONE);
    broken.row(Suspended, "parent", "last").handler_iteration = Some(0);
    broken.violates(Invariant::Failures);
}

#[test]
fn a_committed_child_of_a_rolled_back_parent() {
    let mut broken = good(UNDONE);
    let first = broken.row(Seen, "first", "").lineage.clone();
    let commit = broken.at(Committed, "first", "more");
    let mut at = 0;
    broken.log.events.retain(|row| {
        at += 1;
        row.lineage != first || at <= commit + 1
    });
    broken.violates(Invariant::Whole);
}

#[test]
fn a_rollback_that_failed_for_no_reason() {
    let mut broken = good(NOT_UNDONE);
    broken.row(RollbackFailed, "child", "Rollback of work[0,]").exception = None;
    broken.violates(Invariant::Whole);
}

#[test]
fn times_that_do_not_rise() {
    let mut broken = good(DONE);
    let before = broken.row(Seen, "first", "").at;
    broken.row(Suspended, "first", "work").at = before;
    broken.violates(Invariant::Time);
}

#[test]
fn a_run_that_begins_before_its_time() {
    let mut broken = good(DONE);
    let context = r#"{"SleepUntilKey":{"wakeAfter":"1999-01-01T00:00:00Z"}}"#;
    broken.row(Seen, "first", "").context = serde_json::from_str(context).unwrap();
    broken.violates(Invariant::NotBefore);
}

#[test]
fn a_run_that_continues_before_the_end_of_its_sleep() {
    let mut broken = good(DONE);
    let until = OffsetDateTime::UNIX_EPOCH + Duration::days(1);
    broken.row(Suspended, "first", "work").waits_until = Some(until);
    broken.violates(Invariant::NotBefore);
    let at = broken.row(Suspended, "first", "work").at;
    broken.row(Suspended, "first", "work").waits_until = Some(at);
    broken.is_not_told("the end of the wait");
}

const ANEW: &str = "\
saga feed on feeds
  step fetch [compensated]: emit items
  step turn: anew, fail \"gone\"
saga item on items
  step keep [compensated]
launch feeds
";

#[test]
fn a_rollback_that_ends_before_its_beginning() {
    let mut broken = good(ANEW);
    broken.row(Suspended, "feed", "turn").continues_as_new = false;
    broken.violates(Invariant::Reverse);
}

#[test]
fn an_execution_that_ends_before_its_children() {
    let mut broken = good(ANEW);
    broken.row(Suspended, "feed", "fetch").continues_as_new = true;
    broken.violates(Invariant::Once);
}

/// A good log with a run that awaits a signal after its first step, and gets it; and the signal.
fn signalled() -> (Broken, usize) {
    let mut broken = good(DONE);
    let to = SignalKey { name: "paid".into(), key: "7".into() };
    broken.row(Suspended, "parent", "before").awaits = Some(AwaitedSignal { to: to.clone(), until: None });
    let row = broken.row(Suspended, "parent", "before").clone();
    let delivered_at = Some(row.at);
    let signal = LoggedSignal {
        id: Uuid::from_u128(1),
        to,
        payload: 5.into(),
        sent_at: row.at,
        kept_until: row.at + Duration::days(1),
        delivered_at,
        reached: 1,
    };
    let output = LoggedOutput { run: row.lineage.id(), step: "before".into(), number: 0, value: 5.into() };
    let tables = Tables { signals: vec![signal], outputs: vec![output], ..Tables::default() };
    broken.log.tables = Some(tables);
    let at = broken.at(Suspended, "parent", "before");
    (broken, at)
}

#[test]
fn a_wait_that_ends_without_its_signal() {
    let (mut broken, _) = signalled();
    broken.is_not_told("signal");
    broken.tables().outputs.clear();
    broken.violates(Invariant::Signals);
}

#[test]
fn a_wait_that_ends_with_a_signal_of_another_key() {
    let (mut broken, _) = signalled();
    broken.tables().signals[0].to.key = "8".into();
    broken.violates(Invariant::Signals);
}

#[test]
fn a_signal_that_was_delivered_after_the_end_of_the_wait() {
    let (mut broken, _) = signalled();
    let late = broken.log.events.last().map(|row| row.at);
    broken.tables().signals[0].delivered_at = late;
    broken.violates(Invariant::Signals);
}

#[test]
fn a_signal_that_was_used_up_without_a_run() {
    let (mut broken, at) = signalled();
    broken.log.events[at].awaits = None;
    broken.tables().outputs.clear();
    broken.tables().signals[0].reached = 0;
    broken.violates(Invariant::Signals);
}

#[test]
fn an_outcome_of_a_step_that_runs_at_most_once_and_has_not_begun() {
    let mut broken = good(DONE);
    let steps = broken.definitions[0].steps.to_mut();
    steps[0] = steps[0].clone().at_most_once();
    let row = broken.row(Suspended, "parent", "before").clone();
    let begun = BegunStep { run: row.lineage.id(), step: "before".into(), number: 0, at: row.at };
    broken.log.tables = Some(Tables { begun_steps: vec![begun], ..Tables::default() });
    broken.is_not_told("begun");
    broken.tables().begun_steps[0].number = 2;
    broken.violates(Invariant::AtMostOnce);
}

#[test]
fn a_begun_step_that_was_removed_and_forgotten() {
    let mut broken = good(DONE);
    let row = broken.row(Suspended, "parent", "before").clone();
    let begun = BegunStep { run: row.lineage.id(), step: "removed".into(), number: 1, at: row.at };
    broken.log.tables = Some(Tables { begun_steps: vec![begun], ..Tables::default() });
    broken.violates(Invariant::AtMostOnce);
}

#[test]
fn an_execution_without_the_step_that_goes_on_anew() {
    let mut broken = good(ANEW);
    let row = broken.row(Suspended, "feed", "turn").clone();
    let execution = LoggedExecution { run: row.lineage.id(), number: 1, began_at: row.at };
    broken.log.tables = Some(Tables { executions: vec![execution], ..Tables::default() });
    broken.is_not_told("execution");
    broken.tables().executions[0].number = 2;
    broken.violates(Invariant::Executions);
    broken.tables().executions.clear();
    broken.violates(Invariant::Executions);
}

/// The rows of the runs of a log that rest as failed.
fn failed_runs(log: &Log) -> Vec<FailedRun> {
    let failed = log.events.iter().filter(|row| row.kind == RollbackFailed);
    let row = |row: &LoggedEvent| {
        let parent = row.lineage.parent().filter(|parent| parent.ids().len() > 1);
        FailedRun { run: row.lineage.id(), rests: true, parent: parent.map(|parent| parent.id()) }
    };
    failed.map(row).collect()
}

#[test]
fn a_failed_rollback_whose_row_does_not_rest_or_that_rests_without_one() {
    let mut broken = good(NOT_UNDONE);
    let failed = failed_runs(&broken.log);
    broken.tables().failed_runs = failed.clone();
    broken.is_not_told("fail");
    broken.tables().failed_runs.pop();
    broken.is_found("has no row");

    broken.tables().failed_runs = failed.clone();
    broken.tables().failed_runs[0].rests = false;
    broken.is_found("is the end, and its row does not rest as failed");

    broken.tables().failed_runs = failed.clone();
    let child = broken.row(RollbackFailed, "child", "Rollback of work[0,]").clone();
    let of_child = failed.iter().position(|row| row.run == child.lineage.id()).expect("a row");
    broken.tables().failed_runs[of_child].parent = None;
    broken.is_found("`parent` does not wait for");

    broken.tables().failed_runs = failed;
    let mut settled = child;
    settled.kind = RolledBack;
    broken.log.events.push(settled);
    broken.is_found("is settled, and has the row of a failed run");

    let mut unfailed = good(UNDONE);
    let run = unfailed.row(RolledBack, "parent", "Rollback of before[0,]").lineage.id();
    unfailed.tables().failed_runs.push(FailedRun { run, rests: true, parent: None });
    unfailed.is_found("`parent` has the row of a failed run, and has not failed");
}

#[test]
fn a_run_that_continues_after_a_cancellation_request() {
    let mut broken = good(DONE);
    let at = broken.at(Seen, "parent", "");
    let mut request = broken.log.events[0].clone();
    request.kind = CancellationRequested;
    request.exception = Some(Failure::new("CancellationRequestedException", "enough", "support"));
    broken.log.events.insert(at + 1, request);
    broken.new_times();
    broken.violates(Invariant::GivesUp);
}

#[test]
fn a_step_that_ends_after_its_deadline() {
    let mut broken = good(DONE);
    let deadline = r#"{"AbsoluteDeadlineKey":{"deadline":"1970-01-01T00:00:00Z","source":"s","trace":[]}}"#;
    broken.row(Seen, "first", "").context = serde_json::from_str(deadline).unwrap();
    broken.violates(Invariant::GivesUp);
}

/// The effects that the sagas of a record must have noted in their transactions.
fn effects(of: &Broken) -> Vec<Effect> {
    let suspended = of.log.events.iter().filter(|row| row.kind == Suspended);
    let effects = suspended.filter_map(|row| {
        let name = row.step.as_deref()?;
        let (part, step) = match name.strip_prefix("Rollback of ") {
            Some(rest) => (EffectKind::Compensation, rest.strip_suffix("[0,]")?),
            None => (EffectKind::Step, name),
        };
        let (run, step) = (row.lineage.id(), step.to_owned());
        let effect = |place| Effect { run, step: step.clone(), part, iteration: 0, place };
        Some([effect(EffectPlace::Transaction), effect(EffectPlace::Outside)])
    });
    effects.flatten().collect()
}

#[test]
fn effects_that_are_missing_doubled_or_too_many() {
    let good = good(UNDONE);
    let all = effects(&good);
    let check = |effects: &[Effect]| audit_effects(&good.log, &good.definitions, effects);
    assert_eq!(check(&all), []);
    let find = |part| {
        all.iter().position(|effect| effect.part == part && effect.place == EffectPlace::Transaction).unwrap()
    };
    let (step, compensation) = (find(EffectKind::Step), find(EffectKind::Compensation));

    for (doubled, invariant) in [(step, Invariant::ExecutedOnce), (compensation, Invariant::CompensatedOnce)]
    {
        let mut effects = all.clone();
        effects.push(all[doubled].clone());
        assert_eq!(check(&effects)[0].invariant, invariant);
    }
    for missing in [step, compensation, step + 1] {
        let mut effects = all.clone();
        effects.remove(missing);
        assert_eq!(check(&effects)[0].invariant, Invariant::Atomic);
    }
    for stranger in
        [Effect { iteration: 3, ..all[step].clone() }, Effect { run: Uuid::nil(), ..all[step].clone() }]
    {
        let mut effects = all.clone();
        effects.push(stranger);
        assert_eq!(check(&effects)[0].invariant, Invariant::Atomic);
    }
}

/// A log in which the saga of the root was subscribed after the launch.
fn listed_late() -> Broken {
    let mut broken = good(DONE);
    broken.new_times();
    let emitted = broken.row(Emitted, "", "").at;
    let mut subscriptions = broken.log.subscriptions.iter_mut();
    subscriptions.find(|it| it.handler == "parent").unwrap().since = emitted + Duration::nanoseconds(100);
    broken
}

impl Broken {
    fn redelivered(mut self, nanoseconds: i64) -> Self {
        let LoggedEvent { message, at, .. } = self.row(Emitted, "", "").clone();
        let at = at + Duration::nanoseconds(nanoseconds);
        self.log.redeliveries.push(Redelivery { message, at });
        self
    }
}

#[test]
fn redelivery_counts_subscriptions_before_it() {
    let found = |broken: Broken| audit(&broken.log, &broken.definitions, Quiescence::Yes);
    listed_late().violates(Invariant::Waits);
    assert_eq!(found(listed_late().redelivered(200)), []);
    listed_late().redelivered(50).violates(Invariant::Waits);
}

#[test]
fn redelivery_of_a_message_that_was_handled_or_redelivered_is_found() {
    listed_late().redelivered(200).redelivered(300).violates(Invariant::Once);
    good(DONE).redelivered(1_000_000_000_000).violates(Invariant::Once);
}

#[test]
fn redelivery_that_a_handler_does_not_get_is_found() {
    let mut broken = listed_late().redelivered(200);
    broken.drop_handler("parent");
    broken.violates(Invariant::Progress);
}

/// The rows that the runs of a log have when all have ended.
fn ended_runs(log: &Log) -> Vec<EndedRun> {
    let seen = log.events.iter().filter(|row| row.kind == Seen);
    let of_run = |seen: &LoggedEvent| {
        let own = |row: &&LoggedEvent| row.lineage == seen.lineage && row.handler == seen.handler;
        let end = log.events.iter().rfind(own).expect("it has ended");
        let turned = log.events.iter().filter(own).find(|row| row.kind == RollingBack);
        EndedRun {
            lineage: end.lineage.clone(),
            message: end.message,
            handler: end.handler.clone().expect("it has a handler"),
            outcome: if end.kind == Committed { RunOutcome::Committed } else { RunOutcome::RolledBack },
            failure: turned.and_then(|turned| turned.exception.clone()),
            rollback_failure: None,
            context: end.context.clone(),
            ended_at: end.at,
        }
    };
    seen.map(of_run).collect()
}

#[test]
fn an_ended_run_that_has_no_row_or_another_one_than_its_events() {
    for script in [DONE, UNDONE] {
        let mut broken = good(script);
        let ended = ended_runs(&broken.log);
        broken.tables().ended_runs = ended.clone();
        broken.is_not_told("ended");

        broken.tables().ended_runs.pop();
        broken.is_found("is not among the ended runs");

        let breaks: [fn(&mut EndedRun); 6] = [
            |row| row.outcome = RunOutcome::Dropped,
            |row| row.failure = Some(Failure::new("Other", "another", "nobody")),
            |row| row.rollback_failure = Some(Failure::new("Other", "another", "nobody")),
            |row| row.ended_at += Duration::microseconds(1),
            |row| row.handler.push('x'),
            |row| row.message = Uuid::nil(),
        ];
        for change in breaks {
            broken.tables().ended_runs = ended.clone();
            change(&mut broken.tables().ended_runs[0]);
            broken.violates(Invariant::Ended);
        }
    }
}

#[test]
fn an_ended_run_that_goes_on_or_has_never_begun() {
    let mut broken = good(DONE);
    broken.tables().ended_runs = ended_runs(&broken.log);
    let lineage = Lineage::root(broken.log.events[0].lineage.root_id()).child(Uuid::from_u128(7));
    let unknown = EndedRun { lineage, ..broken.tables().ended_runs[0].clone() };
    broken.tables().ended_runs.push(unknown);
    broken.is_found("has not begun, and is Committed");

    let mut broken = good(DONE);
    broken.tables().ended_runs = ended_runs(&broken.log);
    broken.drop_row(Committed, "parent", "last");
    broken.is_found("`parent` has not ended, and is Committed");
}
