//! Tests of displayed trees, one of which is the sample of the guide.

use expect_test::expect;
use scoop_core::{Failure, Lineage, Wait};
use uuid::Uuid;

use super::*;
use crate::model::run::RowState;
use crate::tree::{LeftOut, RunHead, RunRow, RunStage, TreeBounds, TreeRows, WorkingState};

const WORKER: &str = "scoop-rs:0197a6a0-0000-7000-8000-000000000001";

fn at(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_782_390_697_000 + millis)
}

fn uuid(last: u128) -> Uuid {
    Uuid::from_u128(0x0197_a6b2_6b1c_7000_8000_0000_0000_0000 + last)
}

fn lineage(ids: &[u128]) -> Lineage {
    Lineage::from_ids(ids.iter().copied().map(uuid).collect()).expect("ids")
}

fn event(kind: EventKind, step: Option<&str>, millis: u64) -> RunEvent {
    let event = RunEvent::new(kind, step.map(str::to_owned), Some(at(millis)));
    event.written_by(Some(WORKER.into()), None, None)
}

fn failed(kind: EventKind, step: Option<&str>, millis: u64, failure: &Failure) -> RunEvent {
    RunEvent { failure: Some(failure.clone()), ..event(kind, step, millis) }
}

fn working(state: RowState) -> WorkingState {
    WorkingState { state, ..WorkingState::default() }
}

fn row(ids: &[u128], saga: (&str, &str), working: Option<WorkingState>, events: Vec<RunEvent>) -> RunRow {
    let (handler, topic) = saga;
    let head = RunHead { lineage: lineage(ids), message_id: Uuid::nil(), handler, topic };
    let recorded = match (working, events.last().map(|event| event.kind)) {
        (Some(working), _) => RunStage::Unfinished(working),
        (None, Some(EventKind::Committed)) => RunStage::Committed,
        (None, Some(EventKind::RolledBack)) => RunStage::RolledBack,
        (None, last) => panic!("a run that is not in the working set has ended: {last:?}"),
    };
    RunRow::new(head, recorded, events, Some(at(20_000)))
}

fn shown(rows: Vec<RunRow>) -> String {
    Tree::of(TreeRows::all(rows.into_iter().map(Ok).collect()), vec![], vec![]).to_string()
}

/// The order of the guide: one child has committed, one backs off, one is pending, and the order was cancelled.
fn order() -> Tree {
    use EventKind::{Committed, Seen, Suspended};
    let giving_up = |state: RowState| WorkingState { giving_up: true, ..working(state) };
    let checkout = vec![event(Seen, None, 123), event(Suspended, Some("reserve"), 135)];
    let stock =
        vec![event(Seen, None, 138), event(Suspended, Some("take"), 141), event(Committed, None, 141)];
    let backing_off = WorkingState {
        attempts: 2,
        reason: Some("[courier] Offline: no route\nto host".into()),
        ready_at: Some(at(21_200)),
        give_up_at: Some(at(600_000)),
        ..working(RowState::Ready)
    };
    let rows = vec![
        row(&[0, 1], ("checkout", "orders.placed"), Some(giving_up(RowState::Waiting)), checkout),
        row(&[0, 1, 2], ("stock", "stock.take"), None, stock),
        row(&[0, 1, 3], ("courier", "courier.book"), Some(backing_off), vec![event(Seen, None, 139)]),
        row(&[0, 1, 4], ("mail", "mail.send"), Some(working(RowState::Ready)), vec![]),
    ];
    let asked = Failure::new("CancellationRequestedException", "the customer left", "support");
    let asked = CancellationRequest::new(lineage(&[0, 1]), Some(asked), Some(at(19_500)));
    Tree::of(TreeRows::all(rows.into_iter().map(Ok).collect()), vec![], vec![asked])
}

#[test]
fn sample_of_the_guide_equals_the_printed_tree() {
    let printed = order().to_string();
    let guide = include_str!("../../../../docs/reference/runs.md");
    assert!(guide.contains(&format!("```text\n{printed}```")), "the guide needs this:\n{printed}");
}

#[test]
fn run_is_displayed_in_one_line() {
    let tree = order();
    let lines: Vec<_> = tree.runs().iter().map(ToString::to_string).collect();
    expect![[r#"
        checkout (on orders.placed): waiting for 2 of 3 children: courier, mail
        stock (on stock.take): committed
        courier (on courier.book): retrying, attempt 3 at 2026-06-25T12:31:58.200Z (in 1.2 s); attempt 2 failed: [courier] Offline: no route\nto host
        mail (on mail.send): pending"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn event_is_displayed_in_one_line() {
    let tree = order();
    let lines: Vec<_> = tree.roots()[0].events.iter().map(ToString::to_string).collect();
    expect![[r#"
        2026-06-25T12:31:37.123Z began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001
        2026-06-25T12:31:37.135Z completed reserve, after 12 ms, by scoop-rs:0197a6a0-0000-7000-8000-000000000001"#]].assert_eq(&lines.join("\n"));
}

#[test]
fn rolled_back_run_names_the_steps_it_undid() {
    use EventKind::{RolledBack, RollingBack, Seen, Suspended};
    let mut why = Failure::new("stock.out", "no chairs\nleft", "stock[w]");
    let [file_name, passed] = ["src/stock\u{1b}.rs", "src/pay.rs"].map(str::to_owned);
    let frame =
        |file_name, line_number| Frame { file_name, line_number, class_name: None, function_name: None };
    why.stack_trace = vec![frame(file_name, 57), frame(passed, 9)];
    let children = |step: &str| format!("Rollback of {step}[0,] (rolling back child scopes)");
    let events = vec![
        event(Seen, None, 0),
        event(Suspended, Some("reserve"), 10),
        event(Suspended, Some("pay"), 20),
        failed(RollingBack, Some("pay"), 1_500, &why),
        event(Suspended, Some(&children("pay")), 1_510),
        event(Suspended, Some("Rollback of pay[0,]"), 1_520),
        event(Suspended, Some(&children("reserve")), 1_530),
        event(Suspended, Some("Rollback of reserve[0,]"), 1_530),
        event(RolledBack, Some("Rollback of reserve[0,]"), 1_530),
    ];
    expect![[r#"
        checkout (on orders.placed): rolled back: no chairs\nleft
          run 0197a6b2-6b1c-7000-8000-000000000001, took 1.5 s
          2026-06-25T12:31:37.000Z               began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001
          2026-06-25T12:31:37.010Z      + 10 ms  completed reserve
          2026-06-25T12:31:37.020Z      + 10 ms  completed pay
          2026-06-25T12:31:38.500Z      + 1.4 s  began to roll back in pay: no chairs\nleft, at src/stock\u{1b}.rs:57
          2026-06-25T12:31:38.520Z      + 10 ms  undid pay
          2026-06-25T12:31:38.530Z               undid reserve
          2026-06-25T12:31:38.530Z               rolled back
    "#]]
    .assert_eq(&shown(vec![row(&[0, 1], ("checkout", "orders.placed"), None, events)]));
}

#[test]
fn step_without_a_compensation_is_passed_and_a_handled_failure_is_no_other_run_of_it() {
    use EventKind::{RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::new("stock.out", "none left", "stock[w]");
    let handled = event(Suspended, Some("notify"), 15).written_by(Some(WORKER.into()), Some(0), None);
    let events = vec![
        event(Seen, None, 0),
        event(Suspended, Some("notify"), 10).without_compensation(true),
        handled,
        event(Suspended, Some("pay"), 20),
        failed(RollingBack, Some("pack"), 30, &why),
        event(Suspended, Some("Rollback of pay[2,]"), 40),
        event(Suspended, Some("Rollback of notify[0,]"), 50),
        event(RolledBack, Some("Rollback of notify[0,]"), 50),
    ];
    let rows = vec![Ok(row(&[0, 1], ("checkout", "orders.placed"), None, events))];
    let tree = Tree::of(TreeRows::all(rows), vec![], vec![]);
    let text = tree.to_string();
    for line in ["  undid pay\n", "  passed notify, nothing to undo\n", "  handled child failures in notify"]
    {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("undid notify"), "{text}");
    let bars = tree.roots()[0].timeline();
    let of_notify: Vec<_> = bars.iter().filter(|bar| bar.name == "notify").map(|bar| bar.words).collect();
    assert_eq!(of_notify, ["", "child failures of"], "{bars:?}");
}

/// Two steps with children, and a sleep; then a rollback.
#[test]
fn wait_for_children_is_a_line_of_the_step_that_launched_them() {
    use EventKind::{Committed, RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::new("stock.out", "no chairs left", "stock[w]");
    let children = |step: &str| format!("Rollback of {step}[0,] (rolling back child scopes)");
    let above = vec![
        event(Seen, None, 0),
        event(Suspended, Some("reserve"), 10),
        event(Suspended, Some("rest"), 1_530).before(Some(&Wait::until(at(9_530).into()))),
        event(Suspended, Some("pay"), 9_540),
        failed(RollingBack, Some("pay"), 9_550, &why),
        event(Suspended, Some(&children("reserve")), 9_560),
        event(Suspended, Some("Rollback of reserve[0,]"), 9_900),
        event(RolledBack, Some("Rollback of reserve[0,]"), 9_900),
    ];
    let child = |id: u128, end: u64, undone: u64| {
        let back = failed(RollingBack, None, 9_570, &why);
        let events =
            vec![event(Seen, None, 12), event(Committed, None, end), back, event(RolledBack, None, undone)];
        row(&[0, 1, id], ("stock", "stock.take"), None, events)
    };
    let rows = vec![
        row(&[0, 1], ("checkout", "orders.placed"), None, above),
        child(2, 400, 9_880),
        child(3, 1_510, 9_700),
    ];
    let tree = Tree::of(TreeRows::all(rows.into_iter().map(Ok).collect()), vec![], vec![]);
    let text = tree.to_string();
    let lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("│ 2026")).map(|line| &line[4..]).collect();
    expect![[r#"
        2026-06-25T12:31:37.000Z               began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001
        2026-06-25T12:31:37.010Z      + 10 ms  completed reserve
        2026-06-25T12:31:38.510Z      + 1.5 s  children of reserve ended
        2026-06-25T12:31:38.530Z      + 20 ms  completed rest
        2026-06-25T12:31:46.530Z      + 8.0 s  sleep of rest ended
        2026-06-25T12:31:46.540Z      + 10 ms  completed pay
        2026-06-25T12:31:46.550Z      + 10 ms  began to roll back in pay: no chairs left
        2026-06-25T12:31:46.880Z     + 320 ms  children of reserve rolled back
        2026-06-25T12:31:46.900Z      + 20 ms  undid reserve
        2026-06-25T12:31:46.900Z               rolled back"#]]
    .assert_eq(&lines.join("\n"));
    let reserve = &tree.roots()[0].events[1];
    assert_eq!(reserve.waited, Some(Duration::from_millis(1_500)));
    assert!(
        reserve
            .to_string()
            .contains("completed reserve, after 10 ms, then children of reserve ended after 1.5 s, by")
    );
    let bars = tree.timeline();
    let bars: Vec<_> = bars.iter().map(|bar| format!("{} {}", bar.words, bar.name)).collect();
    let bars: Vec<_> = bars.iter().map(|bar| bar.trim_start()).collect();
    let (step, steps) = (["reserve", "wait after reserve"], ["rest", "wait after rest", "pay", "pay"]);
    assert_eq!(bars[..5], [&["checkout"], &step[..], &["stock", "stock"]].concat());
    assert_eq!(bars[5..9], steps);
    assert_eq!(bars.last(), Some(&"undo reserve"));
}

/// The rollback of a child fails, and that of the run with it. A minute later an operator retries that of the child.
#[test]
fn wait_for_a_child_that_failed_to_roll_back_says_so_and_counts_from_the_repair() {
    use EventKind::{Committed, RollbackFailed, RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::new("stock.out", "no chairs left", "stock[w]");
    let (children, part) = ("Rollback of reserve[0,] (rolling back child scopes)", "Rollback of reserve[0,]");
    let above = vec![
        event(Seen, None, 0),
        event(Suspended, Some("reserve"), 10),
        event(Suspended, Some("pay"), 120),
        failed(RollingBack, Some("pay"), 130, &why),
        event(Suspended, Some(children), 140),
        failed(RollbackFailed, Some(children), 250, &why),
        event(Suspended, Some(part), 60_360),
        event(RolledBack, Some(part), 60_360),
    ];
    let below = vec![
        event(Seen, None, 12),
        event(Committed, None, 100),
        failed(RollingBack, None, 150, &why),
        failed(RollbackFailed, Some("Rollback of take[0,]"), 240, &why),
        event(RolledBack, Some("Rollback of take[0,]"), 60_350),
    ];
    let retry = crate::Intervention {
        run: uuid(2).into(),
        handler: "stock".into(),
        step: Some("Rollback of take[0,]".into()),
        kind: "retry".into(),
        note: None,
        source: "Ada".into(),
        at: at(60_250),
    };
    let rows = vec![
        Ok(row(&[0, 1], ("checkout", "orders.placed"), None, above)),
        Ok(row(&[0, 1, 2], ("stock", "stock.take"), None, below)),
    ];
    let tree = Tree::of(TreeRows::all(rows), vec![(retry, 0)], vec![]);
    let text = tree.to_string();
    let lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("│ 2026")).map(|line| &line[4..]).collect();
    expect![[r#"
        2026-06-25T12:31:37.000Z               began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001
        2026-06-25T12:31:37.010Z      + 10 ms  completed reserve
        2026-06-25T12:31:37.100Z      + 90 ms  children of reserve ended
        2026-06-25T12:31:37.120Z      + 20 ms  completed pay
        2026-06-25T12:31:37.130Z      + 10 ms  began to roll back in pay: no chairs left
        2026-06-25T12:31:37.240Z     + 100 ms  children of reserve failed to roll back
        2026-06-25T12:31:37.250Z      + 10 ms  rollback failed in reserve: no chairs left
        2026-06-25T12:32:37.350Z     + 100 ms  children of reserve rolled back
        2026-06-25T12:32:37.360Z      + 10 ms  undid reserve
        2026-06-25T12:32:37.360Z               rolled back"#]]
    .assert_eq(&lines.join("\n"));
    let mut waits = tree.roots()[0].timeline().into_iter().filter(|bar| bar.kind == crate::BarKind::Wait);
    assert_eq!(waits.next_back().map(|bar| (bar.from, bar.to)), Some((at(60_250), Some(at(60_350)))));
    let of_child = tree.roots()[0].children[0].timeline();
    let mark = of_child.iter().find(|bar| bar.kind == crate::BarKind::Intervention).expect("it has a mark");
    assert_eq!((mark.name, mark.from, mark.to), ("retry", at(60_250), Some(at(60_250))));
}

#[test]
fn intervention_comes_before_the_compensation_that_begins_at_its_time() {
    use EventKind::{RollbackFailed, RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::new("stock.out", "no chairs left", "stock[w]");
    let part = "Rollback of take[0,]";
    let events = vec![
        event(Seen, None, 0),
        event(Suspended, Some("take"), 10),
        failed(RollingBack, Some("pay"), 130, &why),
        failed(RollbackFailed, Some(part), 240, &why),
        event(Suspended, Some(part), 60_350),
        event(RolledBack, Some(part), 60_350),
    ];
    let retry = crate::Intervention {
        run: uuid(1).into(),
        handler: "stock".into(),
        step: Some(part.into()),
        kind: "retry".into(),
        note: None,
        source: "Ada".into(),
        at: at(60_250),
    };
    let rows = vec![Ok(row(&[0, 1], ("stock", "stock.take"), None, events))];
    let tree = Tree::of(TreeRows::all(rows), vec![(retry, 0)], vec![]);
    let bars = tree.roots()[0].timeline();
    let [.., retry, undo] = &bars[..] else { panic!("{tree}") };
    assert_eq!((retry.kind, undo.words), (crate::BarKind::Intervention, "undo"), "{tree}");
    assert_eq!((retry.from, undo.from), (at(60_250), at(60_250)), "{tree}");
}

#[test]
fn skip_of_a_run_with_failed_children_is_no_rollback_of_these() {
    use EventKind::{Committed, RollbackFailed, RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::new("stock.out", "no chairs left", "stock[w]");
    let (children, part) = ("Rollback of reserve[0,] (rolling back child scopes)", "Rollback of reserve[0,]");
    let skip = RunEvent::new(Suspended, Some(children.into()), Some(at(60_250)));
    let above = vec![
        event(Seen, None, 0),
        event(Suspended, Some("reserve"), 10),
        failed(RollingBack, Some("pay"), 130, &why),
        event(Suspended, Some(children), 140),
        failed(RollbackFailed, Some(children), 250, &why),
        skip.written_by(Some(scoop_core::OPERATOR.into()), None, None),
        event(Suspended, Some(part), 60_360),
        event(RolledBack, Some(part), 60_360),
    ];
    let below = vec![
        event(Seen, None, 12),
        event(Committed, None, 100),
        failed(RollingBack, None, 150, &why),
        event(RolledBack, Some("Rollback of take[0,]"), 60_300),
    ];
    let text = shown(vec![
        row(&[0, 1], ("checkout", "orders.placed"), None, above),
        row(&[0, 1, 2], ("stock", "stock.take"), None, below),
    ]);
    assert!(text.contains("skipped the wait for the failed children of reserve\n"), "{text}");
    assert!(!text.contains("children of reserve rolled back"), "{text}");
    assert_eq!(text.matches("children of reserve ended\n").count(), 2, "{text}");
}

#[test]
fn rollback_of_a_step_that_never_completed_is_not_shown() {
    use EventKind::{RolledBack, RollingBack, Seen};
    let why = Failure::new("stock.out", "no chairs left", "stock[w]");
    let events = vec![
        event(Seen, None, 0),
        failed(RollingBack, Some("reserve"), 5, &why),
        event(RolledBack, Some("Rollback of reserve[0,]"), 5),
    ];
    let rows = || vec![row(&[0, 1], ("checkout", "orders.placed"), None, events.clone())];
    let text = shown(rows());
    assert!(!text.contains("undid") && !text.contains("Rollback of"), "{text}");
    let tree = Tree::of(TreeRows::all(rows().into_iter().map(Ok).collect()), vec![], vec![]);
    let end = &tree.roots()[0].events[2];
    assert_eq!((end.word(), end.subject()), ("rolled back, nothing to undo", None));
}

#[test]
fn wait_before_a_step_is_neither_completed_nor_undone() {
    use EventKind::{RolledBack, RollingBack, Seen, Suspended};
    let why = Failure::gave_up("checkout[w]", vec![]);
    let wait = "ship (waiting for scheduled time)";
    let back = |of: &str, number: u32| format!("Rollback of {of}[{number},]");
    let of_pack = vec![
        event(Seen, None, 0),
        event(Suspended, Some("pack"), 5),
        event(Suspended, Some(wait), 10).before(Some(&Wait::until(at(80_000).into()))),
        failed(RollingBack, Some("ship"), 20, &why),
        event(Suspended, Some(&back(wait, 1)), 21),
        event(RolledBack, Some(&back("pack", 0)), 22),
    ];
    let first = vec![
        event(Seen, None, 0),
        event(Suspended, Some(wait), 5),
        event(Suspended, Some("ship"), 10),
        failed(RollingBack, Some("bill"), 20, &why),
        event(Suspended, Some(&back("ship", 1)), 21),
        event(RolledBack, Some(&back(wait, 0)), 22),
    ];
    let words = |events: Vec<RunEvent>| {
        let rows = vec![Ok(row(&[0, 1], ("checkout", "orders.placed"), None, events))];
        let tree = Tree::of(TreeRows::all(rows), vec![], vec![]);
        let words: Vec<_> = tree.roots()[0].events.iter().map(RunEvent::word).collect();
        words.join(", ")
    };
    let before = "began, completed, began to wait, began to roll back, nothing to undo, rolled back";
    assert_eq!(words(of_pack.clone()), before);
    assert_eq!(words(first), "began, began to wait, completed, began to roll back, undid, rolled back");
    let text = shown(vec![row(&[0, 1], ("checkout", "orders.placed"), None, of_pack)]);
    assert!(text.contains("began to wait for ship") && !text.contains("undid"), "{text}");
}

#[test]
fn sleeping_run_shows_the_end_of_its_sleep() {
    let slept = WorkingState { ready_at: Some(at(80_000)), ..working(RowState::Ready) };
    let suspended =
        event(EventKind::Suspended, Some("rest"), 5).before(Some(&Wait::until(at(80_000).into())));
    let events = vec![event(EventKind::Seen, None, 0), suspended];
    let text = shown(vec![row(&[0, 1], ("reminder", "remind"), Some(slept), events)]);
    assert!(
        text.contains("reminder (on remind): sleeping until 2026-06-25T12:32:57.000Z (in 1 min 0 s)"),
        "{text}"
    );
    assert!(!text.contains("sleep of rest ended"), "{text}");
}

#[test]
fn run_that_waits_for_many_names_a_few_sagas() {
    let child =
        |id: u128, saga: &str| row(&[0, 1, id], (saga, "t"), Some(working(RowState::Running)), vec![]);
    let mut rows = vec![row(&[0, 1], ("above", "t"), Some(working(RowState::Waiting)), vec![])];
    rows.extend([2, 3, 4].map(|id| child(id, "a")));
    rows.extend([(5, "b"), (6, "c"), (7, "d"), (8, "e")].map(|(id, saga)| child(id, saga)));
    rows.push(row(&[0, 1, 9], ("f", "t"), None, vec![event(EventKind::Committed, None, 0)]));
    let text = shown(rows);
    assert!(text.starts_with("above (on t): waiting for 7 of 8 children: 3 × a, b, c, d, …\n"), "{text}");
}

#[test]
fn lost_attempt_is_shown_while_the_next_one_runs() {
    let lost =
        WorkingState { attempts: 1, reason: Some("its worker died".into()), ..working(RowState::Running) };
    let events = vec![event(EventKind::Seen, None, 0)];
    let text = shown(vec![row(&[0, 1], ("checkout", "orders.placed"), Some(lost), events)]);
    let line = "checkout (on orders.placed): running, attempt 2; attempt 1 failed: its worker died\n";
    assert!(text.starts_with(line), "{text}");
}

#[test]
fn texts_of_users_cannot_forge_a_line() {
    let forged = "x\n└─ refund (on money): committed\u{1b}[1A\r";
    let why = Failure::new(forged, forged, forged);
    let events = vec![
        RunEvent { worker: Some(forged.into()), ..event(EventKind::Seen, Some(forged), 0) },
        failed(EventKind::RollingBack, Some(forged), 1, &why),
    ];
    let held = |state: RowState| WorkingState {
        reason: Some(forged.into()),
        giving_up: true,
        attempts: 1,
        ..working(state)
    };
    let mut rows: Vec<_> = [RowState::Stuck, RowState::Ready, RowState::Running]
        .into_iter()
        .enumerate()
        .map(|(nth, state)| {
            Ok(row(&[0, 1 + nth as u128], (forged, forged), Some(held(state)), events.clone()))
        })
        .collect();
    rows.push(Err(forged.into()));
    let done = crate::Intervention {
        run: uuid(1).into(),
        handler: forged.into(),
        step: Some(forged.into()),
        kind: forged.into(),
        note: Some(forged.into()),
        source: forged.into(),
        at: SystemTime::UNIX_EPOCH,
    };
    let asked = CancellationRequest::new(lineage(&[0]), Some(why), None);
    let tree = Tree::of(TreeRows::all(rows), vec![(done, 0)], vec![asked]);
    let text = tree.to_string();
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("└─ refund")), "{text}");
    // The request; five lines per run (the run, its id, its request, two events); the intervention; the unreadable
    // row.
    assert_eq!(text.lines().count(), 1 + 3 * 5 + 1 + 1, "{text}");
}

#[test]
fn text_with_other_hints_says_each_once() {
    let events = vec![event(EventKind::Seen, None, 0), event(EventKind::Committed, None, 2).after_gap(true)];
    let rows = vec![Ok(row(&[0, 1], ("checkout", "orders.placed"), None, events))];
    let left_out = LeftOut { deeper_runs: true, launched: true };
    let tree = Tree::of(TreeRows::new(rows, left_out, TreeBounds::default()), vec![], vec![]);
    let hints = |text: String| {
        let lines = text.lines().filter(|line| line.contains("left out"));
        lines.map(|line| line.rsplit(": ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    let of_library =
        ["see `events` of the tree)", "see `limit` of the tree)", "see `depth` and `limit` of the tree)"];
    assert_eq!(hints(tree.to_string()), of_library);
    let other = TreeHints { events: "raise --events", unhandled: "leave out --limit", runs: "raise --depth" };
    let text = TreeText { tree: &tree, hints: other };
    assert_eq!(hints(text.to_string()), ["raise --events)", "leave out --limit)", "raise --depth)"]);
}

#[test]
fn event_with_an_unreadable_time_keeps_its_place() {
    let mut events = vec![
        event(EventKind::Seen, None, 0),
        event(EventKind::Suspended, Some("reserve"), 1),
        event(EventKind::Committed, None, 2),
    ];
    events[1].at = None;
    let text = shown(vec![row(&[0, 1], ("checkout", "orders.placed"), None, events)]);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert!(lines[3].starts_with("(unreadable time)") && lines[3].contains("completed reserve"), "{text}");
    assert!(lines[4].contains("+ 2 ms"), "the duration ignores the unreadable time\n{text}");
}

/// A chain of so many runs, each the child of the one before it; below the last one, a message without a handler.
fn chain(levels: u128) -> String {
    let events = || vec![event(EventKind::Seen, None, 0)];
    let ids: Vec<_> = (0..=levels).collect();
    let link =
        |level: usize| row(&ids[..=level + 1], ("link", "chain"), Some(working(RowState::Waiting)), events());
    let mut rows: Vec<_> = (0..ids.len() - 1).map(link).collect();
    rows.push(RunRow::unhandled(lineage(&ids), Uuid::nil(), "nowhere", Some(at(7)), None));
    shown(rows)
}

#[test]
fn level_below_the_indented_ones_is_a_number() {
    let text = chain(34);
    let indent = "   ".repeat(31);
    let lines: Vec<_> = text.lines().skip_while(|line| !line.contains("[level 33]")).collect();
    let expected = [
        "[level 33] link (on chain): waiting for 1 of 1 children: link",
        "│ run 0197a6b2-6b1c-7000-8000-000000000021",
        "│ 2026-06-25T12:31:37.000Z               began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001",
        "[level 34] link (on chain): waiting for its children",
        "│ run 0197a6b2-6b1c-7000-8000-000000000022",
        "│ 2026-06-25T12:31:37.000Z               began, by scoop-rs:0197a6a0-0000-7000-8000-000000000001",
        "[level 35] no handler (on nowhere): launched 2026-06-25T12:31:37.007Z",
    ];
    assert_eq!(lines, expected.map(|line| format!("{indent}{line}")));
}

#[test]
fn size_of_the_text_is_linear_in_the_depth() {
    let [half, whole] = [450, 900].map(|levels| chain(levels).len());
    assert!(whole < 2 * half + half / 20, "{half} bytes of 450 levels, {whole} of 900");
    assert!(whole < 900 * 600, "{whole} bytes");
}
