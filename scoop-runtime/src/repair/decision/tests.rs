//! Tests of decisions about failed runs.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

/// A run at this place of the hierarchy 1 that failed by itself. The one above it waits for it.
fn failed(place: &[u128]) -> ConcernedRun {
    let ids = [1].iter().chain(place).copied().map(Uuid::from_u128).collect();
    let lineage = Lineage::from_ids(ids).unwrap();
    ConcernedRun {
        parent: lineage.parent().map(|parent| parent.id()).filter(|_| place.len() > 1),
        lineage,
        message: Uuid::from_u128(100 + place[place.len() - 1]),
        handler: format!("h{}", place[place.len() - 1]),
        state: RowState::Failed,
        rolling_back: true,
        has_failed: true,
        part: Some("Rollback of a[0,]".into()),
        handling: None,
        context: Some(Context::default()),
        compensates: false,
        is_part_complete: false,
        leaves_behind: false,
    }
}

/// A run as in [`failed`], but it failed because of its children.
fn failed_with_children(place: &[u128]) -> ConcernedRun {
    ConcernedRun { handling: Some(0), ..failed(place) }
}

fn id(run: u128) -> Uuid {
    Uuid::from_u128(run)
}

/// Run 2 failed because of 3 and 4; run 3 failed because of 5.
fn family() -> [ConcernedRun; 4] {
    [failed_with_children(&[2]), failed_with_children(&[2, 3]), failed(&[2, 4]), failed(&[2, 3, 5])]
}

fn decide(
    runs: impl IntoIterator<Item = ConcernedRun>,
    action: RepairAction,
    run: u128,
) -> Result<Decision, Refusal> {
    FailedRun::find(id(run), runs)?.decide(action)
}

/// The runs that go on, with their states.
fn repaired(decision: &Decision) -> Vec<(u128, RowState)> {
    decision.repaired.iter().map(|run| (run.id.as_u128(), run.state)).collect()
}

fn events(decision: &Decision) -> Vec<(&str, &str)> {
    decision.events.iter().map(|event| (event.kind, &*event.handler)).collect()
}

#[test]
fn retry_of_a_failure_without_ancestors_has_only_the_run_go_on() {
    let decision = decide([failed(&[2])], RepairAction::Retry, 2).unwrap();
    assert_eq!(repaired(&decision), [(2, RowState::Ready)]);
    assert_eq!((decision.part.as_str(), decision.repeats), ("Rollback of a[0,]", false));
    assert!(decision.events.is_empty() && decision.accepts_below.is_none() && decision.parent.is_none());
    assert!(decision.repaired[0].rollback_requested);
    assert_eq!(decide([failed(&[2])], RepairAction::Retry, 3).unwrap_err(), Refusal::NotFailed);
}

#[test]
fn retry_has_the_ancestors_wait_and_leaves_other_failed_runs_below_them() {
    let decision = decide(family(), RepairAction::Retry, 5).unwrap();
    assert_eq!(repaired(&decision), [(3, RowState::Waiting), (2, RowState::Waiting), (5, RowState::Ready)]);
    assert_eq!((decision.parent, decision.waits_above), (None, None));
}

#[test]
fn run_that_failed_because_of_children_can_be_skipped_and_resolved_but_not_retried() {
    assert_eq!(decide(family(), RepairAction::Retry, 2).unwrap_err(), Refusal::FailedBelow);
    let skipped = decide(family(), RepairAction::Skip, 3).unwrap();
    assert_eq!(events(&skipped), [("SUSPENDED", "h3")]);
    assert_eq!(skipped.accepts_below, Some(id(3)), "run 5 rests without run 3");
    assert_eq!(repaired(&skipped), [(2, RowState::Waiting), (3, RowState::Ready)]);

    let resolved = decide(family(), RepairAction::Resolve, 2).unwrap();
    let rolled_back = events(&resolved);
    assert_eq!(rolled_back.last(), Some(&("ROLLED_BACK", "h2")));
    let place = |handler| rolled_back.iter().position(|event| *event == ("ROLLED_BACK", handler)).unwrap();
    assert!(place("h5") < place("h3") && place("h4") < place("h2") && rolled_back.len() == 4);
    assert!(resolved.repaired.is_empty() && resolved.parent.is_none());
    let below = decide(family(), RepairAction::Resolve, 3).unwrap();
    assert_eq!((below.parent, repaired(&below)), (Some(id(2)), vec![(2, RowState::Waiting)]));
    assert_eq!(events(&below), [("ROLLED_BACK", "h5"), ("ROLLED_BACK", "h3")]);
}

#[test]
fn decision_on_a_run_with_many_failed_children_looks_at_each_child_once() {
    const CHILDREN: u128 = 20_000;
    let children = (3..3 + CHILDREN).map(|child| failed(&[2, child]));
    let begin = Instant::now();
    let failed = FailedRun::find(id(2), children.chain([failed_with_children(&[2])])).unwrap();
    assert_eq!(failed.decide(RepairAction::Resolve).unwrap().events.len(), 20_001);
    assert_eq!(failed.decide(RepairAction::Skip).unwrap().accepts_below, Some(id(2)));
    // With a look at all of them for each, it takes minutes.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn runs_that_name_each_other_as_parents_do_not_wait_for_each_other() {
    let [one, other] = [&[2, 3][..], &[3, 2][..]].map(failed_with_children);
    for run in [2, 3] {
        let decided = decide([one.clone(), other.clone()], RepairAction::Retry, run).unwrap();
        assert_eq!(repaired(&decided), [(run, RowState::Ready)]);
    }
}

#[test]
fn accepted_run_goes_on_without_the_run_above() {
    let mut runs = family();
    (runs[1].parent, runs[2].parent) = (None, None);
    let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
    assert_eq!(repaired(&decision), [(3, RowState::Waiting), (5, RowState::Ready)]);
    assert_eq!(repaired(&decide(runs.clone(), RepairAction::Retry, 4).unwrap()), [(4, RowState::Ready)]);
    let above = decide(runs, RepairAction::Resolve, 2).unwrap();
    assert_eq!(events(&above), [("ROLLED_BACK", "h2")], "it does not wait for them");
}

#[test]
fn busy_run_or_relative_refuses_the_repair() {
    let with = |at: usize, state| {
        let mut runs = family();
        runs[at].state = state;
        move |action, run| decide(runs.clone(), action, run).map(|_| ())
    };
    for state in [RowState::Ready, RowState::Running, RowState::Waiting] {
        assert_eq!(with(3, state)(RepairAction::Retry, 5), Err(Refusal::Busy), "{state}: its own repair");
        assert_eq!(with(3, state)(RepairAction::Skip, 3), Err(Refusal::Busy), "{state}: below it");
        assert_eq!(with(3, state)(RepairAction::Resolve, 2), Err(Refusal::Busy), "{state}: further below");
        assert_eq!(with(2, state)(RepairAction::Retry, 5), Ok(()), "{state}: run 4 is a sibling of run 3");
    }
    for state in [RowState::Ready, RowState::Running, RowState::Stuck] {
        assert_eq!(
            with(1, state)(RepairAction::Retry, 5),
            Err(Refusal::Busy),
            "{state}: it records the failure"
        );
    }
    let mut runs = family();
    (runs[1].state, runs[1].rolling_back) = (RowState::Waiting, false);
    let unrecorded = decide(runs, RepairAction::Retry, 5).map(|_| ());
    assert_eq!(unrecorded, Err(Refusal::Busy), "run 3 has not recorded the failure");
    assert_eq!(with(3, RowState::Stuck)(RepairAction::Skip, 5), Err(Refusal::Stuck));
    let mut runs = family();
    (runs[3].state, runs[3].has_failed) = (RowState::Waiting, false);
    assert_eq!(decide(runs, RepairAction::Retry, 5).unwrap_err(), Refusal::NotFailed);
}

#[test]
fn run_above_that_waits_already_gets_to_know_of_the_decision() {
    let mut runs = family();
    runs[0].state = RowState::Waiting;
    let decision = decide(runs.clone(), RepairAction::Retry, 4).unwrap();
    assert_eq!((repaired(&decision), decision.waits_above), (vec![(4, RowState::Ready)], Some(id(2))));
    let decision = decide(runs, RepairAction::Resolve, 5).unwrap();
    assert_eq!((repaired(&decision), decision.waits_above), (vec![(3, RowState::Waiting)], Some(id(2))));
}

#[test]
fn damaged_row_refuses_the_repairs_that_need_it_and_no_other() {
    let damaged = |at: usize, damage| {
        let mut runs = family();
        match damage {
            Damage::Step => runs[at].part = None,
            Damage::Context => runs[at].context = None,
        }
        move |action, run| decide(runs.clone(), action, run).map(|_| ())
    };
    let all = [RepairAction::Retry, RepairAction::Skip, RepairAction::Resolve];
    for damage in [Damage::Step, Damage::Context] {
        let (own, refused) = (damaged(3, damage), Err(Refusal::Damaged(id(5), damage)));
        for action in all {
            assert_eq!(own(action, 5), refused, "{action:?}");
            assert_eq!(own(action, 4), Ok(()), "{action:?} of a run of another branch");
        }
        assert_eq!(own(RepairAction::Skip, 3), Ok(()), "run 5 is left as it is");
        assert_eq!(own(RepairAction::Resolve, 3), refused, "run 5 is resolved, too");
        assert_eq!(damaged(2, damage)(RepairAction::Retry, 5), Ok(()), "run 4 rests");
    }
    let above = |damage| damaged(1, damage)(RepairAction::Retry, 5);
    assert_eq!(above(Damage::Step), Ok(()));
    assert_eq!(above(Damage::Context), Err(Refusal::Damaged(id(3), Damage::Context)), "run 3 goes on");
}

#[test]
fn run_above_that_failed_by_itself_rests_until_a_decision_about_it() {
    let mut runs = family();
    // It gave up while it waited for run 5.
    runs[1].handling = None;
    let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
    assert_eq!((repaired(&decision), decision.waits_above), (vec![(5, RowState::Ready)], None));
    assert_eq!(decide(runs, RepairAction::Retry, 3).unwrap_err(), Refusal::FailedBelow, "run 5 comes first");
}

#[test]
fn retry_above_a_failed_run_is_refused_also_beside_a_repair() {
    let mut runs = family();
    runs[2].state = RowState::Ready;
    assert_eq!(decide(runs.clone(), RepairAction::Retry, 2).unwrap_err(), Refusal::Busy);
    assert_eq!(decide(runs, RepairAction::Skip, 2).unwrap_err(), Refusal::Busy, "run 4 is in repair");
}

#[test]
fn part_that_stopped_waiting_for_children_runs_again() {
    let run = |leaves_behind, action| {
        decide([ConcernedRun { leaves_behind, ..failed(&[2]) }], action, 2).unwrap().repeats
    };
    assert!(run(true, RepairAction::Retry) && !run(false, RepairAction::Retry));
    assert!(!run(true, RepairAction::Skip), "a skip leaves the children unchanged");
}

#[test]
fn done_part_runs_again_if_it_failed_because_of_its_children() {
    let run = |handling, is_part_complete| {
        let run = ConcernedRun { handling, is_part_complete, ..failed(&[2]) };
        decide([run], RepairAction::Retry, 2).unwrap().repeats
    };
    assert!(run(Some(0), true) && run(Some(2), true));
    assert!(!run(None, true), "it gave up, or the handling of the failures is retried");
    assert!(!run(Some(0), false), "another part comes next");
}

#[test]
fn child_of_a_compensation_counts_as_requested_only_without_a_waiting_parent() {
    let mut runs = family();
    runs[3].compensates = true;
    let rollback_requested = |decision: Decision| decision.repaired.last().unwrap().rollback_requested;
    assert!(!rollback_requested(decide(runs.clone(), RepairAction::Retry, 5).unwrap()));
    let mut by_itself = runs.clone();
    by_itself[1].handling = None;
    assert!(rollback_requested(decide(by_itself, RepairAction::Retry, 5).unwrap()), "run 3 rests");
    runs[3].parent = None;
    assert!(
        rollback_requested(decide(runs, RepairAction::Retry, 5).unwrap()),
        "no run waits for it any more"
    );
}

#[test]
fn written_event_names_the_run_and_its_part() {
    let mut run = failed_with_children(&[2]);
    run.context = serde_json::from_value(json!({
        "Note": 7, "RollbackPathDeadlineKey": { "deadline": "2026-01-01T00:00:00Z", "source": "a" },
    }))
    .map(Some)
    .unwrap();
    let skipped = decide([run], RepairAction::Skip, 2).unwrap();
    let event = serde_json::to_value(&skipped.events[0]).unwrap();
    let expected = json!({
        "message_id": id(102), "type": "SUSPENDED", "handler": "h2", "part": "Rollback of a[0,]",
        "lineage": [id(1), id(2)], "handling": 0, "context": event["context"],
    });
    assert_eq!((&event, &event["context"]["Note"]), (&expected, &json!(7)));
    let run = serde_json::to_value(&skipped.repaired[0]).unwrap();
    let expected = json!({
        "id": id(2), "state": "ready", "rollback_requested": true, "deadlines": ["2026-01-01T00:00:00Z"],
    });
    assert_eq!(run, expected);
}

#[test]
fn remedies_have_their_stored_names() {
    let names = [RepairAction::Retry, RepairAction::Skip, RepairAction::Resolve].map(RepairAction::as_str);
    assert_eq!(names, ["retry", "skip", "resolve"]);
}
