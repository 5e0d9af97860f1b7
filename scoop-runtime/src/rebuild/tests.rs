//! Histories of a few rows, and the resulting working sets. The integration tests compare rebuilt working sets with
//! those of the engine.

use scoop_core::{Context, EventKind, Lineage, Wait};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::{OperatorAction, RecordedEvent, SubscriptionPeriod, rebuild};

/// The working set is rebuilt at this second; each row is a second later than the one before.
const NOW: i64 = 1_000;

fn at(second: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + Duration::seconds(second)
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// A history under construction.
#[derive(Clone, Default)]
struct History {
    rows: Vec<RecordedEvent>,
    revivals: Vec<OperatorAction>,
    listened: Vec<SubscriptionPeriod>,
}

impl History {
    /// Adds a row with this lineage and message.
    fn row(mut self, place: &[u128], kind: EventKind, message: u128) -> Self {
        let second = i64::try_from(self.rows.len()).unwrap() + 1;
        let of_run =
            !matches!(kind, EventKind::Emitted | EventKind::CancellationRequested) || place.len() > 1;
        self.rows.push(RecordedEvent {
            lineage: Lineage::from_ids(place.iter().copied().map(id).collect()).unwrap(),
            message: id(message),
            kind,
            handler: of_run.then(|| format!("h{}", place[place.len() - 1])),
            topic: format!("t{message}"),
            step: None,
            jump: None,
            definition: None,
            handling: None,
            exception: None,
            context: Context::default(),
            at: at(second),
            redelivered_at: None,
            wait: None,
            begins: None,
        });
        self
    }

    /// Changes the last row.
    fn but(mut self, change: impl FnOnce(&mut RecordedEvent)) -> Self {
        change(self.rows.last_mut().unwrap());
        self
    }

    fn step(self, step: &str) -> Self {
        let step = step.to_owned();
        self.but(|row| row.step = Some(step))
    }

    fn jump(self, step: &str) -> Self {
        self.but(|row| row.jump = Some(step.to_owned()))
    }

    fn handling(self, count: i32) -> Self {
        self.but(|row| row.handling = Some(count))
    }

    fn because(self, why: &str) -> Self {
        let why = json!({ "message": why });
        self.but(|row| row.exception = Some(why))
    }

    fn with(self, context: Value) -> Self {
        self.but(|row| row.context = serde_json::from_value(context).unwrap())
    }

    fn emitted(self, place: &[u128], message: u128) -> Self {
        self.row(place, EventKind::Emitted, message)
    }

    fn seen(self, place: &[u128], message: u128) -> Self {
        self.row(place, EventKind::Seen, message)
    }

    fn suspended(self, place: &[u128], message: u128, step: &str) -> Self {
        self.row(place, EventKind::Suspended, message).step(step)
    }

    fn listens(mut self, message: u128, handler: &str, since: i64, until: Option<i64>) -> Self {
        let (topic, handler) = (format!("t{message}"), handler.to_owned());
        self.listened.push(SubscriptionPeriod {
            topic,
            handler,
            since: at(since),
            until: until.map(at),
            dropped: false,
        });
        self
    }

    fn rows(&self) -> Vec<Value> {
        let rebuilt = rebuild(&self.rows, &self.revivals, &self.listened, at(NOW));
        rebuilt.iter().map(|run| serde_json::to_value(run).unwrap()).collect()
    }

    /// The runs with their states, and the runs that wait for them.
    fn states(&self) -> Vec<(String, String, Option<u128>)> {
        let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
        let parent = |row: &Value| row["parent"].as_str().map(|id| id.parse::<Uuid>().unwrap().as_u128());
        let rows = self.rows();
        rows.iter().map(|row| (text(row, "handler"), text(row, "state"), parent(row))).collect()
    }

    /// These fields of the row of this handler.
    fn fields<const N: usize>(&self, handler: &str, fields: [&str; N]) -> [Value; N] {
        let rows = self.rows();
        let row = rows.iter().find(|row| row["handler"] == handler).expect("it is unfinished");
        fields.map(|field| row[field].clone())
    }
}

fn states(expected: &[(&str, &str, Option<u128>)]) -> Vec<(String, String, Option<u128>)> {
    expected.iter().map(|(handler, state, parent)| ((*handler).into(), (*state).into(), *parent)).collect()
}

fn time(second: i64) -> Value {
    json!(at(second).format(&time::format_description::well_known::Rfc3339).unwrap())
}

fn deadline(key: &str, second: i64) -> Value {
    json!({ key: { "deadline": time(second), "source": "test" } })
}

/// Run 2 has emitted message 20 in its step `a`, and run 3 handles it.
fn family() -> History {
    let history = History::default().emitted(&[1], 10).seen(&[1, 2], 10).emitted(&[1, 2], 20);
    history.suspended(&[1, 2], 10, "a").jump("b").seen(&[1, 2, 3], 20)
}

#[test]
fn pending_delivery_belongs_to_the_handlers_subscribed_at_the_launch() {
    let launched = History::default().emitted(&[1], 10).listens(10, "listens", 1, None);
    let launched = launched.listens(10, "left since", 0, Some(2)).listens(10, "late", 2, None);
    let launched = launched.listens(10, "gone", 0, Some(1)).listens(11, "elsewhere", 0, None);
    let mut launched = launched.listens(10, "dropped", 0, None);
    launched.listened.last_mut().unwrap().dropped = true;
    let expected = states(&[("listens", "ready", None), ("left since", "ready", None)]);
    assert_eq!(launched.states(), expected);
    let fields = ["begun", "rolling_back", "ready_at", "message_id", "topic", "suspensions"];
    let expected = [json!(false), json!(false), time(1), json!(id(10)), json!("t10"), json!(0)];
    assert_eq!(launched.fields("listens", fields), expected);
    let begun = launched.seen(&[1, 2], 10).but(|row| row.handler = Some("listens".into()));
    assert_eq!(begun.states(), states(&[("listens", "ready", None), ("left since", "ready", None)]));
    assert_eq!(begun.fields("listens", ["begun"]), [json!(true)]);
}

#[test]
fn delayed_run_is_due_at_its_time_or_deadline() {
    let launched = History::default().emitted(&[1], 10).listens(10, "h", 0, None);
    let asleep = launched.with(json!({ "SleepUntilKey": { "wakeAfter": time(50) } }));
    assert_eq!(asleep.fields("h", ["ready_at", "give_up_at"]), [time(50), Value::Null]);
    let mut context = deadline("AbsoluteDeadlineKey", 40);
    context["SleepUntilKey"] = json!({ "wakeAfter": time(50) });
    assert_eq!(asleep.with(context).fields("h", ["ready_at", "give_up_at"]), [time(40), time(40)]);
}

#[test]
fn sleeping_run_is_due_at_its_wake_up_or_deadline() {
    let slept = |context: Value| {
        let begun = History::default().emitted(&[1], 10).seen(&[1, 2], 10);
        let wait = |row: &mut RecordedEvent| row.wait = Some(Wait::until(at(50)));
        begun.suspended(&[1, 2], 10, "a").but(wait).with(context)
    };
    assert_eq!(slept(json!({})).fields("h2", ["state", "ready_at"]), [json!("ready"), time(50)]);
    let in_time = slept(deadline("AbsoluteDeadlineKey", 40));
    assert_eq!(in_time.fields("h2", ["ready_at", "give_up_at"]), [time(40), time(40)]);
    let waits = slept(json!({})).listens(11, "child", 0, None);
    let waits = History { rows: waits.rows[..2].to_vec(), ..waits }.emitted(&[1, 2], 11);
    let waits = waits.suspended(&[1, 2], 10, "a").but(|row| row.wait = Some(Wait::until(at(50))));
    assert_eq!(waits.fields("h2", ["state", "ready_at"]), [json!("waiting"), time(50)]);
    let cancelled = slept(json!({})).row(&[1], EventKind::CancellationRequested, 10);
    assert_eq!(cancelled.fields("h2", ["ready_at"]), [time(2)], "it gives up at once");
    let woken = slept(json!({})).suspended(&[1, 2], 10, "b");
    assert_eq!(woken.fields("h2", ["ready_at"]), [time(2)], "the wait is over");
}

#[test]
fn run_continues_after_its_last_event() {
    let fresh = History::default().emitted(&[1], 10).seen(&[1, 2], 10);
    let fields = ["state", "step", "jump", "iteration", "handler_iteration", "suspensions", "last_event_at"];
    let none = Value::Null;
    let expected =
        [json!("ready"), none.clone(), none.clone(), none.clone(), none.clone(), json!(0), time(2)];
    assert_eq!(fresh.fields("h2", fields), expected);
    let twice = fresh.suspended(&[1, 2], 10, "a").jump("a").suspended(&[1, 2], 10, "a").jump("a");
    let expected = [json!("ready"), json!("a"), json!("a"), json!(1), none.clone(), json!(2), time(4)];
    assert_eq!(twice.fields("h2", fields), expected);
    let handled = twice.suspended(&[1, 2], 10, "a").jump("b").handling(0);
    let expected = [json!("ready"), json!("a"), json!("b"), json!(1), json!(0), json!(3), time(5)];
    assert_eq!(handled.fields("h2", fields), expected);
    let on = handled.suspended(&[1, 2], 10, "b").jump("a").suspended(&[1, 2], 10, "a").jump("b");
    let expected = [json!(0), json!(5), json!({ "a": 3, "b": 1 })];
    assert_eq!(on.fields("h2", ["iteration", "suspensions", "completions"]), expected);
    let back = on.clone().row(&[1, 2], EventKind::RollingBack, 10).step("b");
    assert_eq!(back.fields("h2", ["suspensions", "completions"]), [json!(5), none.clone()]);
    let over = on.row(&[1, 2], EventKind::Committed, 10);
    assert_eq!(over.states(), []);
}

#[test]
fn parent_waits_for_children_and_pending_deliveries() {
    let family = family();
    assert_eq!(family.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    let listened = family.listens(20, "other", 0, None);
    let expected = [("h2", "waiting", None), ("h3", "ready", Some(2)), ("other", "ready", Some(2))];
    assert_eq!(listened.states(), states(&expected));
    let done = listened.row(&[1, 2, 3], EventKind::Committed, 20);
    assert_eq!(done.states(), states(&[("h2", "waiting", None), ("other", "ready", Some(2))]));
    let went_on = done.suspended(&[1, 2], 10, "b");
    assert_eq!(went_on.states(), states(&[("h2", "ready", None)]), "h2 stopped waiting");
}

#[test]
fn failed_child_is_kept_until_the_parent_has_recorded_it() {
    let turned = family().row(&[1, 2, 3], EventKind::RollingBack, 20).step("x").because("out");
    assert_eq!(turned.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    let fields = ["rolling_back", "rollback_requested", "rollback_started_at", "rollback_since", "failure"];
    let out = json!({ "message": "out" });
    let expected = [json!(true), json!(false), time(6), time(6), out.clone()];
    assert_eq!(turned.fields("h3", fields), expected);
    let undone = turned.row(&[1, 2, 3], EventKind::RolledBack, 20).step("x");
    assert_eq!(undone.states(), states(&[("h2", "ready", None), ("h3", "ended", Some(2))]));
    let fields = ["rolling_back", "begun", "rollback_started_at", "failure", "rollback_failure"];
    let expected = [json!(true), json!(true), time(6), out, Value::Null];
    assert_eq!(undone.fields("h3", fields), expected);
    let noted = undone.row(&[1, 2], EventKind::RollingBack, 10).step("a").because("child");
    assert_eq!(noted.states(), states(&[("h2", "ready", None)]));
}

#[test]
fn child_with_a_failed_rollback_blocks_the_rollback_of_its_parent() {
    let failed = family().row(&[1, 2, 3], EventKind::RollingBack, 20).step("x").because("out");
    let failed = failed.row(&[1, 2, 3], EventKind::RollbackFailed, 20).step("x").because("stuck");
    assert_eq!(failed.states(), states(&[("h2", "ready", None), ("h3", "ended", Some(2))]));
    let expected = [json!({ "message": "out" }), json!({ "message": "stuck" })];
    assert_eq!(failed.fields("h3", ["failure", "rollback_failure"]), expected);
    let turned = failed.row(&[1, 2], EventKind::RollingBack, 10).step("a").because("child");
    assert_eq!(turned.states(), states(&[("h2", "ready", None), ("h3", "ended", Some(2))]));
    let handled = turned.suspended(&[1, 2], 10, "Rollback of a[0,]").handling(0);
    assert_eq!(handled.states(), states(&[("h2", "ready", None)]));
}

#[test]
fn requested_rollback_revives_the_run_for_the_requester() {
    let done = family().row(&[1, 2, 3], EventKind::Committed, 20).with(json!({ "Own": 1, "Both": 1 }));
    let turned = done.row(&[1, 2], EventKind::RollingBack, 10).step("b").because("no");
    let part = "Rollback of a[0,] (rolling back child scopes)";
    let told = turned.row(&[1, 2], EventKind::RollbackEmitted, 20).step(part).because("parent said so");
    let told = told.with(json!({ "Both": 2 })).suspended(&[1, 2], 10, part);
    assert_eq!(told.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    let fields = [
        "begun",
        "rolling_back",
        "rollback_requested",
        "rollback_since",
        "failure",
        "context",
        "suspensions",
        "step",
    ];
    let (said, context) = (json!({ "message": "parent said so" }), json!({ "Both": 2, "Own": 1 }));
    let expected = [
        json!(false),
        json!(true),
        json!(true),
        time(8),
        said.clone(),
        context.clone(),
        json!(0),
        Value::Null,
    ];
    assert_eq!(told.fields("h3", fields), expected);
    let own = ["step", "iteration", "suspensions", "rollback_requested", "rollback_since"];
    assert_eq!(told.fields("h2", own), [json!(part), json!(0), json!(1), json!(false), time(7)]);

    let turning = told.row(&[1, 2, 3], EventKind::RollingBack, 20).because("parent said so");
    let turning = turning.with(json!({ "Both": 2 }));
    assert_eq!(
        turning.fields("h3", ["begun", "rollback_requested", "context"]),
        [json!(true), json!(true), context]
    );
    let undone = turning.row(&[1, 2, 3], EventKind::RolledBack, 20);
    assert_eq!(undone.states(), states(&[("h2", "ready", None)]), "the requester knows the reason");
}

#[test]
fn cancellation_applies_to_the_run_and_its_descendants() {
    let asked = family().row(&[1, 2], EventKind::CancellationRequested, 10);
    let giving_up = |history: &History| ["h2", "h3"].map(|run| history.fields(run, ["giving_up"])[0].clone());
    assert_eq!(giving_up(&family()), [json!(false), json!(false)]);
    assert_eq!(giving_up(&asked), [json!(true), json!(true)]);
    let below = family().row(&[1, 2, 3], EventKind::CancellationRequested, 20);
    assert_eq!(giving_up(&below), [json!(false), json!(true)]);
    let undoing = asked.row(&[1, 2, 3], EventKind::RollingBack, 20).step("x");
    assert_eq!(giving_up(&undoing), [json!(true), json!(false)], "a rollback is out of reach");
    let listened = family().listens(20, "other", 0, None).row(&[1], EventKind::CancellationRequested, 10);
    assert_eq!(listened.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
}

#[test]
fn deadline_applies_to_its_path_if_it_is_after_the_start() {
    let run = History::default().emitted(&[1], 10).seen(&[1, 2], 10);
    let both = |happy, absolute| {
        let mut context = deadline("HappyPathDeadlineKey", happy);
        context["AbsoluteDeadlineKey"] =
            deadline("AbsoluteDeadlineKey", absolute)["AbsoluteDeadlineKey"].clone();
        context["RollbackPathDeadlineKey"] = deadline("x", 80)["x"].clone();
        context
    };
    let give_up_at = |history: &History| history.fields("h2", ["give_up_at"])[0].clone();
    let run = run.with(both(50, 60));
    assert_eq!(give_up_at(&run), time(50));
    let run = run.with(both(70, 60));
    assert_eq!(give_up_at(&run), time(60));
    let back = run.row(&[1, 2], EventKind::RollingBack, 10).step("a").with(both(50, 60));
    assert_eq!(give_up_at(&back), time(60));
    assert_eq!(give_up_at(&back.with(both(50, 3))), time(80), "the rollback began at 3");
}

/// The rollback of run 2 failed because of that of run 3.
fn broken() -> History {
    let done = family().row(&[1, 2, 3], EventKind::Committed, 20);
    let turned = done.row(&[1, 2], EventKind::RollingBack, 10).step("b").because("no");
    let told = turned.row(&[1, 2], EventKind::RollbackEmitted, 20).step("children").because("said");
    let told =
        told.suspended(&[1, 2], 10, "children").row(&[1, 2, 3], EventKind::RollingBack, 20).because("said");
    let failed =
        told.row(&[1, 2, 3], EventKind::RollbackFailed, 20).step("Rollback of x[0,]").because("stuck");
    failed.row(&[1, 2], EventKind::RollbackFailed, 10).step("children").handling(0).because("below")
}

#[test]
fn failed_rollback_is_active_again_after_an_intervention() {
    assert_eq!(broken().states(), []);
    let mut retried = broken();
    retried.revivals.push(OperatorAction { run: id(3), at: at(100), resolves: false });
    assert_eq!(retried.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    let fields = ["rollback_failed_before", "rollback_requested", "rollback_since", "reason"];
    let expected = [json!(true), json!(true), time(NOW), Value::Null];
    assert_eq!(retried.fields("h3", fields), expected);
    retried.revivals[0].at = at(2);
    assert_eq!(retried.states(), [], "the intervention was before the failure");

    let mut above = broken();
    above.revivals.push(OperatorAction { run: id(2), at: at(100), resolves: false });
    assert_eq!(above.states(), states(&[("h2", "waiting", None), ("h3", "stuck", Some(2))]));
    let expected = [json!(true), json!(crate::repair::AWAITING_OPERATOR)];
    assert_eq!(above.fields("h3", ["rollback_failed_before", "reason"]), expected);

    let skipped = broken().suspended(&[1, 2, 3], 20, "Rollback of x[0,]");
    assert_eq!(skipped.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    let resolved = broken().row(&[1, 2, 3], EventKind::RolledBack, 20);
    assert_eq!(resolved.states(), states(&[("h2", "ready", None)]));
}

#[test]
fn repeated_failure_awaits_an_operator_again() {
    let why = json!({ "type": "Error", "message": "no", "source": "s", "stackTrace": [], "causes": [] });
    let again = |history: History| {
        let failed =
            history.row(&[1, 2, 3], EventKind::RollbackFailed, 20).step("Rollback of w[0,]").handling(0);
        failed.but(|row| row.exception = Some(why.clone()))
    };
    let mut retried = broken();
    retried.revivals.push(OperatorAction { run: id(3), at: at(13), resolves: false });
    // The revival takes a second of its own.
    let retried = again(retried.emitted(&[1, 2, 3], 40));
    assert_eq!(retried.states(), states(&[("h2", "waiting", None), ("h3", "stuck", Some(2))]));
    let failure: scoop_core::Failure = serde_json::from_value(why.clone()).unwrap();
    let reason = crate::repair::failed_again_reason(&failure);
    assert_eq!(retried.fields("h3", ["reason"]), [json!(reason)]);

    let skipped_above = retried.suspended(&[1, 2], 10, "children").handling(0);
    assert_eq!(skipped_above.states(), states(&[("h2", "ready", None)]), "no run waits for it any more");
    let went_on = again(broken().suspended(&[1, 2, 3], 20, "Rollback of x[0,]"));
    assert_eq!(went_on.states(), states(&[("h2", "waiting", None), ("h3", "stuck", Some(2))]));
}

/// Run 2 rolls back, and has launched message 30 in its rollback, which run 5 handles.
fn compensating() -> History {
    let run = History::default().emitted(&[1], 10).seen(&[1, 2], 10).suspended(&[1, 2], 10, "a").jump("b");
    let turned = run.row(&[1, 2], EventKind::RollingBack, 10).step("b").because("no").emitted(&[1, 2], 30);
    turned.suspended(&[1, 2], 10, "Rollback of a[0,]").seen(&[1, 2, 5], 30)
}

#[test]
fn message_launched_by_a_rollback_is_part_of_it() {
    let asked = compensating().row(&[1], EventKind::CancellationRequested, 10);
    let fields = ["parent", "rolling_back", "rollback_requested", "rollback_since", "giving_up"];
    let expected = [json!(id(2)), json!(false), json!(false), time(5), json!(false)];
    assert_eq!(asked.fields("h5", fields), expected);
    let mut context = deadline("HappyPathDeadlineKey", 50);
    context["RollbackPathDeadlineKey"] = deadline("x", 60)["x"].clone();
    context["AbsoluteDeadlineKey"] = deadline("x", 4)["x"].clone();
    let mut listened = asked.listens(30, "other", 0, None);
    let emission = listened.rows.iter_mut().find(|row| row.message == id(30)).unwrap();
    emission.context = serde_json::from_value(context).unwrap();
    let fields = ["parent", "rollback_since", "giving_up", "give_up_at"];
    let expected = [json!(id(2)), time(5), json!(false), time(60)];
    assert_eq!(listened.fields("other", fields), expected, "the message was launched after 4");
}

#[test]
fn failed_child_of_a_compensation_is_passed_to_its_parent() {
    let turned = compensating().row(&[1, 2, 5], EventKind::RollingBack, 30).step("x").because("out");
    let failed = turned.row(&[1, 2, 5], EventKind::RollbackFailed, 30).step("Rollback of x[0,]");
    assert_eq!(failed.states(), states(&[("h2", "ready", None), ("h5", "ended", Some(2))]));
    let mut retried =
        failed.row(&[1, 2], EventKind::RollbackFailed, 10).step("Rollback of a[0,]").handling(0);
    assert_eq!(retried.states(), []);
    retried.revivals.push(OperatorAction { run: id(5), at: at(100), resolves: false });
    assert_eq!(retried.states(), states(&[("h2", "waiting", None), ("h5", "ready", Some(2))]));
    assert_eq!(retried.fields("h5", ["rollback_requested"]), [json!(false)]);
    let mut undone = retried.row(&[1, 2, 5], EventKind::RolledBack, 30);
    assert_eq!(undone.states(), states(&[("h2", "ready", None), ("h5", "ended", Some(2))]));
    assert_eq!(undone.fields("h5", ["rollback_requested", "rollback_failure"]), [json!(false), Value::Null]);
    undone.revivals[0].resolves = true;
    assert_eq!(undone.states(), states(&[("h2", "ready", None)]), "a resolved child is no failure");
    let again = undone.row(&[1, 2], EventKind::RollbackFailed, 10).step("Rollback of a[0,]").handling(0);
    assert_eq!(again.states(), states(&[("h2", "stuck", None)]), "h2 had recorded the end");
}

#[test]
fn own_failure_awaits_an_operator_when_children_are_active_again() {
    let by_itself = |handling: Option<i32>| {
        let mut history = broken();
        history.rows.last_mut().unwrap().handling = handling;
        history.revivals.push(OperatorAction { run: id(3), at: at(100), resolves: false });
        history
    };
    let held = states(&[("h2", "stuck", None), ("h3", "ready", None)]);
    assert_eq!(by_itself(None).states(), held);
    assert_eq!(by_itself(Some(1)).states(), held, "no failure was handled before");
    assert_eq!(by_itself(Some(0)).fields("h2", ["state"]), [json!("waiting")]);
    let mut handled = by_itself(Some(2));
    let suspended = |row: &&mut RecordedEvent| {
        row.kind == EventKind::Suspended && row.step.as_deref() == Some("children")
    };
    handled.rows.iter_mut().find(suspended).unwrap().handling = Some(1);
    assert_eq!(handled.states(), states(&[("h2", "waiting", None), ("h3", "ready", Some(2))]));
    // A handling on the forward path does not count.
    let mut forward = by_itself(Some(1));
    forward.rows.iter_mut().find(|row| row.step.as_deref() == Some("a")).unwrap().handling = Some(0);
    assert_eq!(forward.states(), held);
}

#[test]
fn after_an_intervention_only_later_deadlines_apply() {
    let give_up_at = |second| {
        let mut retried = broken();
        retried.revivals.push(OperatorAction { run: id(3), at: at(100), resolves: false });
        let own = retried.rows.iter_mut().filter(|row| row.lineage.id() == id(3));
        own.for_each(|row| {
            row.context = serde_json::from_value(deadline("AbsoluteDeadlineKey", second)).unwrap()
        });
        retried.fields("h3", ["give_up_at"])[0].clone()
    };
    assert_eq!(give_up_at(NOW + 5), time(NOW + 5));
    assert_eq!(give_up_at(101), time(101), "the deadline was missed after the intervention");
    assert_eq!(give_up_at(99), Value::Null);
    assert_eq!(give_up_at(100), Value::Null);
}

#[test]
fn pending_delivery_is_dropped_when_its_emitter_stops_waiting() {
    let listened = family().listens(20, "other", 0, None);
    let is_awaited = |history: &History| history.states().iter().any(|(handler, ..)| handler == "other");
    let until = |second| {
        let mut history = family().listens(20, "other", 0, None);
        let run = history.rows.iter_mut().filter(|row| row.lineage.id() == id(2));
        let context: Context = serde_json::from_value(deadline("HappyPathDeadlineKey", second)).unwrap();
        run.filter(|row| row.kind != EventKind::Emitted).for_each(|row| row.context = context.clone());
        history
    };
    assert!(is_awaited(&listened) && is_awaited(&until(NOW + 1)));
    assert!(!is_awaited(&until(NOW)) && !is_awaited(&until(NOW - 1)));
    let turned = listened.row(&[1, 2], EventKind::RollingBack, 10).step("a");
    assert!(!is_awaited(&turned));
}

#[test]
fn row_contains_step_values_unless_the_rollback_was_requested() {
    let remembers = |history: &History, handler: &str| {
        let rebuilt = rebuild(&history.rows, &history.revivals, &history.listened, at(NOW));
        rebuilt.iter().find(|run| run.handler == handler).unwrap().keeps_outputs()
    };
    let family = family().listens(20, "other", 0, None);
    assert!(remembers(&family, "h2") && remembers(&family, "h3") && !remembers(&family, "other"));
    let turned = family.row(&[1, 2, 3], EventKind::RollingBack, 20).step("x");
    assert!(remembers(&turned, "h3"));
    assert!(!remembers(&turned.row(&[1, 2, 3], EventKind::RolledBack, 20), "h3"), "it has ended");
    let mut told = broken();
    told.revivals.push(OperatorAction { run: id(3), at: at(100), resolves: false });
    assert!(!remembers(&told, "h2") && !remembers(&told, "h3"), "they read the values from the record");
}

#[test]
fn requested_rollback_continues_after_its_last_part() {
    let twice = History::default().emitted(&[1], 10).seen(&[1, 2], 10).suspended(&[1, 2], 10, "a").jump("a");
    let done = twice.suspended(&[1, 2], 10, "a").jump("b").row(&[1, 2], EventKind::Committed, 10);
    let told = done.row(&[1, 2], EventKind::RollbackEmitted, 10).but(|row| row.handler = None);
    let turned = told.row(&[1, 2], EventKind::RollingBack, 10);
    let fields = ["step", "iteration", "suspensions"];
    assert_eq!(turned.fields("h2", fields), [Value::Null, Value::Null, json!(0)]);
    let part = turned.suspended(&[1, 2], 10, "Rollback of a[1,]");
    assert_eq!(part.fields("h2", fields), [json!("Rollback of a[1,]"), json!(0), json!(0)]);
}

#[test]
fn no_run_waits_for_a_rollback_requested_by_an_operator() {
    let done = family().row(&[1, 2, 3], EventKind::Committed, 20);
    let requested = done.row(&[1, 2, 3], EventKind::RollbackEmitted, 20).but(|row| row.handler = None);
    assert_eq!(requested.states(), states(&[("h2", "ready", None), ("h3", "ready", None)]));
}

#[test]
fn accepted_failure_revives_no_ancestor() {
    let failed = family().row(&[1, 2, 3], EventKind::RollingBack, 20).step("x").because("out");
    let failed = failed.row(&[1, 2, 3], EventKind::RollbackFailed, 20).step("Rollback of x[0,]");
    let accepted = failed.suspended(&[1, 2], 10, "a").jump("b").handling(0);
    let turned = accepted.row(&[1, 2], EventKind::RollingBack, 10).step("b").because("no");
    let mut retried = turned.row(&[1, 2], EventKind::RollbackFailed, 10).step("Rollback of a[0,]");
    retried.revivals.push(OperatorAction { run: id(3), at: at(100), resolves: false });
    assert_eq!(retried.states(), states(&[("h3", "ready", None)]));
    retried.revivals[0].run = id(2);
    assert_eq!(retried.states(), states(&[("h2", "ready", None)]), "the accepted failure does not block h2");
}
