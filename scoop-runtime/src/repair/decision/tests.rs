//! Tests of decisions about failed rollbacks.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;

const WAITING: Presence = Presence::Waiting { awaits_operator: false };

/// A run at this place of the hierarchy 1 that failed at this second, not because of its children.
fn failed(place: &[u128], second: i64) -> FailedRollback {
    let ids = [1].iter().chain(place).copied().map(Uuid::from_u128).collect();
    FailedRollback {
        lineage: Lineage::from_ids(ids).unwrap(),
        message: Uuid::from_u128(100 + place[place.len() - 1]),
        handler: format!("h{}", place[place.len() - 1]),
        failed_at: at(second),
        part: Some("Rollback of a[0,]".into()),
        handling: None,
        presence: Presence::Absent,
        suspended_at: Some(at(0)),
        suspended_part: None,
        suspended_handling: None,
        leaves_behind: false,
        context: Some(Context::default()),
        compensates: false,
    }
}

/// A run as in [`failed`], but because of its children.
fn failed_with_children(place: &[u128], second: i64) -> FailedRollback {
    FailedRollback { handling: Some(0), ..failed(place, second) }
}

fn at(second: i64) -> OffsetDateTime {
    OffsetDateTime::UNIX_EPOCH + time::Duration::seconds(second)
}

fn id(run: u128) -> Uuid {
    Uuid::from_u128(run)
}

/// Run 2 failed because of 3 and 4; run 3 failed because of 5.
fn family() -> [FailedRollback; 4] {
    [
        failed_with_children(&[2], 9),
        failed_with_children(&[2, 3], 8),
        failed(&[2, 4], 7),
        failed(&[2, 3, 5], 6),
    ]
}

fn decide(
    runs: impl IntoIterator<Item = FailedRollback>,
    action: RepairAction,
    run: u128,
) -> Result<Decision, Refusal> {
    FailedRollbacks::new(runs).decide(action, id(run), OtherDescendants::None)
}

/// The runs that are added to the working set, with their states and the runs that wait for them.
fn revived(decision: &Decision) -> Vec<(u128, RowState, Option<u128>)> {
    let revived = decision.revived.iter();
    revived.map(|run| (run.id.as_u128(), run.state, run.parent.map(|above| above.as_u128()))).collect()
}

fn dropped(decision: &Decision) -> Vec<u128> {
    let mut dropped: Vec<_> = decision.dropped.iter().map(Uuid::as_u128).collect();
    dropped.sort_unstable();
    dropped
}

fn events(decision: &Decision) -> Vec<(&str, &str)> {
    decision.events.iter().map(|event| (event.kind, &*event.handler)).collect()
}

#[test]
fn retry_of_a_failure_without_ancestors_revives_only_the_run() {
    let decision = decide([failed(&[2], 5)], RepairAction::Retry, 2).unwrap();
    assert_eq!(revived(&decision), [(2, RowState::Ready, None)]);
    assert_eq!((decision.part.as_str(), decision.repeats), ("Rollback of a[0,]", false));
    assert!(decision.events.is_empty() && decision.dropped.is_empty() && decision.parent.is_none());
    let [run] = &*decision.revived else { panic!() };
    assert!(run.rollback_requested && run.reason.is_none());
    assert_eq!(decide([failed(&[2], 5)], RepairAction::Retry, 3).unwrap_err(), Refusal::NotFailed);
}

#[test]
fn retry_revives_the_ancestors_and_the_other_runs_that_block_them() {
    let decision = decide(family(), RepairAction::Retry, 5).unwrap();
    let expected = [
        (3, RowState::Waiting, Some(2)),
        (2, RowState::Waiting, None),
        (4, RowState::Stuck, Some(2)),
        (5, RowState::Ready, Some(3)),
    ];
    assert_eq!(revived(&decision), expected);
    let held = decision.revived.iter().find(|run| run.state == RowState::Stuck).unwrap();
    assert_eq!(held.reason, Some(AWAITING_OPERATOR));
    assert!(dropped(&decision).is_empty() && decision.parent.is_none());
}

#[test]
fn run_that_failed_because_of_children_can_be_skipped_and_resolved_but_not_retried() {
    assert_eq!(decide(family(), RepairAction::Retry, 2).unwrap_err(), Refusal::FailedBelow);
    let skipped = decide(family(), RepairAction::Skip, 3).unwrap();
    assert_eq!(events(&skipped), [("SUSPENDED", "h3")]);
    assert_eq!(dropped(&skipped), [5]);
    let expected =
        [(2, RowState::Waiting, None), (4, RowState::Stuck, Some(2)), (3, RowState::Ready, Some(2))];
    assert_eq!(revived(&skipped), expected);

    let resolved = decide(family(), RepairAction::Resolve, 2).unwrap();
    let rolled_back: Vec<_> = events(&resolved);
    assert_eq!(rolled_back.last(), Some(&("ROLLED_BACK", "h2")));
    let place = |handler| rolled_back.iter().position(|event| *event == ("ROLLED_BACK", handler)).unwrap();
    assert!(place("h5") < place("h3") && place("h4") < place("h2") && rolled_back.len() == 4);
    assert_eq!(dropped(&resolved), [2, 3, 4, 5]);
    assert!(resolved.revived.is_empty() && resolved.parent.is_none());
    let below = decide(family(), RepairAction::Resolve, 3).unwrap();
    assert_eq!((below.parent, revived(&below)[0]), (Some(id(2)), (2, RowState::Waiting, None)));
}

#[test]
fn decision_on_a_run_with_many_failed_children_looks_at_each_child_once() {
    const CHILDREN: u128 = 20_000;
    let children = (3..3 + CHILDREN).map(|child| failed(&[2, child], 5));
    let failed = FailedRollbacks::new(children.chain([failed_with_children(&[2], 9)]));
    let begin = Instant::now();
    let below = failed.undecided(id(2));
    assert!(below.iter().copied().eq((3..3 + CHILDREN).map(id)), "in the order of their ids");
    let decide = |action, run| failed.decide(action, id(run), OtherDescendants::None).unwrap();
    let resolved = decide(RepairAction::Resolve, 2);
    assert_eq!((resolved.events.len(), resolved.dropped.len()), (20_001, 20_001));
    assert_eq!(decide(RepairAction::Skip, 2).dropped.len(), 20_000);
    let retried = decide(RepairAction::Retry, 3);
    assert_eq!(retried.revived.len(), 20_001, "the run, the parent and the other children");
    // With a look at all of them for each, it takes minutes.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn runs_that_name_each_other_as_parents_block_neither() {
    let [one, other] = [&[2, 3][..], &[3, 2][..]].map(|path| failed_with_children(path, 5));
    let failed = FailedRollbacks::new([one, other]);
    for run in [2, 3] {
        assert_eq!(failed.undecided(id(run)), [id(run)]);
        let decided = failed.decide(RepairAction::Retry, id(run), OtherDescendants::None);
        assert_eq!(decided.unwrap().revived.len(), 1, "only the run itself");
    }
}

#[test]
fn run_that_failed_again_is_undecided_for_all_runs_above_and_one_in_repair_for_none() {
    let failed = |five: Presence, four: Presence| {
        let mut runs = family();
        (runs[0].presence, runs[1].presence) = (WAITING, WAITING);
        (runs[2].presence, runs[3].presence) = (four, five);
        FailedRollbacks::new(runs)
    };
    let numbers = |runs: Vec<Uuid>| runs.iter().map(Uuid::as_u128).collect::<Vec<_>>();
    let undecided = |five, four| {
        let failed = failed(five, four);
        [2, 3, 4, 5].map(|run| numbers(failed.undecided(id(run))))
    };
    let in_repair = |five, four| {
        let failed = failed(five, four);
        [2, 3, 4, 5].map(|run| numbers(failed.in_repair(id(run))))
    };
    let (held, busy, gone) = (Presence::AwaitsOperator, Presence::Busy, Presence::Absent);
    assert_eq!(in_repair(held, gone), [vec![], vec![], vec![], vec![]]);
    assert_eq!(in_repair(busy, held), [vec![5], vec![5], vec![], vec![5]]);
    assert_eq!(in_repair(busy, busy), [vec![4, 5], vec![5], vec![4], vec![5]]);
    assert_eq!(undecided(held, gone), [vec![4, 5], vec![5], vec![4], vec![5]]);
    assert_eq!(undecided(busy, held), [vec![4], vec![], vec![4], vec![]]);
    assert_eq!(undecided(busy, busy), [vec![], vec![], vec![], vec![]]);
}

#[test]
fn undecided_runs_come_the_nearest_first_and_on_each_level_the_oldest_failure_first() {
    let failed = FailedRollbacks::new([
        failed_with_children(&[2], 20),
        failed_with_children(&[2, 3], 10),
        failed_with_children(&[2, 4], 11),
        failed(&[2, 3, 5], 8),
        failed(&[2, 3, 6], 6),
        failed(&[2, 4, 7], 7),
        failed(&[2, 8], 12),
    ]);
    assert_eq!(failed.undecided(id(2)), [8, 6, 7, 5].map(id));
}

#[test]
fn accepted_failure_blocks_no_ancestor() {
    let mut runs = family();
    runs[0].suspended_at = Some(at(7));
    let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
    assert_eq!(
        revived(&decision),
        [(3, RowState::Waiting, Some(2)), (2, RowState::Waiting, None), (5, RowState::Ready, Some(3))]
    );
    assert_eq!(revived(&decide(runs.clone(), RepairAction::Retry, 4).unwrap()), [(4, RowState::Ready, None)]);
    runs[0].suspended_at = None;
    assert_eq!(revived(&decide(runs, RepairAction::Retry, 4).unwrap()), [(4, RowState::Ready, None)]);
}

#[test]
fn busy_run_or_relative_refuses_the_repair() {
    let with = |at: usize, presence| {
        let mut runs = family();
        runs[at].presence = presence;
        move |action, run| decide(runs.clone(), action, run).map(|_| ())
    };
    for at in [0, 1, 3] {
        assert_eq!(with(at, Presence::Busy)(RepairAction::Retry, 5), Err(Refusal::Busy), "run {at}");
    }
    assert_eq!(with(2, Presence::Busy)(RepairAction::Retry, 5), Ok(()), "run 4 is a sibling of run 3");
    assert_eq!(with(3, Presence::Busy)(RepairAction::Resolve, 2), Err(Refusal::Busy));
    assert_eq!(
        with(3, WAITING)(RepairAction::Retry, 5),
        Err(Refusal::Busy),
        "run 5 waits for a run that does not await an operator"
    );
    assert_eq!(with(1, WAITING)(RepairAction::Skip, 3), Ok(()));
    assert_eq!(with(3, Presence::AwaitsOperator)(RepairAction::Retry, 5), Ok(()));
    let others =
        FailedRollbacks::new(family()).decide(RepairAction::Retry, id(5), OtherDescendants::Unfinished);
    assert_eq!(others.map(|_| ()), Err(Refusal::Busy));
}

#[test]
fn damaged_record_refuses_the_repairs_that_need_it_and_no_other() {
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
        assert_eq!(damaged(2, damage)(RepairAction::Retry, 5), Ok(()), "run 4 awaits an operator");
    }
    let above = |damage| damaged(1, damage)(RepairAction::Retry, 5);
    assert_eq!(above(Damage::Step), Ok(()));
    assert_eq!(above(Damage::Context), Err(Refusal::Damaged(id(3), Damage::Context)), "run 3 goes on");
}

#[test]
fn run_in_the_working_set_stays_unless_it_awaits_an_operator() {
    let mut runs = family();
    (runs[0].presence, runs[1].presence, runs[2].presence) =
        (WAITING, Presence::AwaitsOperator, Presence::AwaitsOperator);
    let decision = decide(runs.clone(), RepairAction::Retry, 5).unwrap();
    assert_eq!(revived(&decision), [(3, RowState::Waiting, Some(2)), (5, RowState::Ready, Some(3))]);
    // Run 3 did not fail because of its children, so it awaits an operator itself.
    runs[1].handling = None;
    // It waits for no child, so run 5 gets no parent: an end passed to run 3 would never be consumed.
    assert_eq!(revived(&decide(runs.clone(), RepairAction::Retry, 5).unwrap()), [(5, RowState::Ready, None)]);
    runs[1].presence = Presence::Absent;
    let decision = decide(runs, RepairAction::Retry, 5).unwrap();
    assert_eq!(revived(&decision), [(3, RowState::Stuck, Some(2)), (5, RowState::Ready, None)]);
}

/// The runs that wait after a decision, and whether they await an operator.
fn waiting(decision: &Decision) -> Vec<(u128, bool)> {
    let revived = decision.revived.iter().filter(|run| run.state == RowState::Waiting);
    let revived = revived.map(|run| (run.id.as_u128(), run.awaits_operator));
    revived.chain(decision.cleared.iter().map(|run| (run.as_u128(), false))).collect()
}

#[test]
fn run_that_waits_awaits_an_operator_if_any_other_run_below_it_does() {
    let retried = decide(family(), RepairAction::Retry, 5).unwrap();
    assert_eq!(waiting(&retried), [(3, false), (2, true)], "run 2 waits for run 4");
    // All are back, and run 5 has failed again.
    let held = Presence::Waiting { awaits_operator: true };
    let mut runs = family();
    (runs[0].presence, runs[1].presence) = (held, held);
    (runs[2].presence, runs[3].presence) = (Presence::AwaitsOperator, Presence::AwaitsOperator);
    assert_eq!(
        waiting(&decide(runs.clone(), RepairAction::Skip, 5).unwrap()),
        [(3, false)],
        "run 2 waits for run 4"
    );
    assert_eq!(
        waiting(&decide(runs.clone(), RepairAction::Resolve, 4).unwrap()),
        [],
        "run 3 waits for run 5"
    );
    assert_eq!(
        waiting(&decide(runs.clone(), RepairAction::Resolve, 3).unwrap()),
        [],
        "run 2 waits for run 4"
    );
    // Run 5 is in repair.
    (runs[1].presence, runs[3].presence) = (WAITING, Presence::Busy);
    assert_eq!(waiting(&decide(runs, RepairAction::Retry, 4).unwrap()), [(2, false)]);
    // Run 3 did not fail because of its children: it does not wait for run 5, but awaits an operator.
    let mut runs = family();
    (runs[1].handling, runs[2].presence) = (None, Presence::Busy);
    assert_eq!(waiting(&decide(runs, RepairAction::Retry, 5).unwrap()), [(2, true)]);
}

#[test]
fn retry_above_a_run_that_awaits_a_decision_is_refused_also_beside_a_repair() {
    let mut runs = family();
    runs[3].presence = Presence::Busy;
    assert_eq!(
        decide(runs.clone(), RepairAction::Retry, 2).unwrap_err(),
        Refusal::FailedBelow,
        "run 4 comes first"
    );
    assert_eq!(decide(runs.clone(), RepairAction::Skip, 2).unwrap_err(), Refusal::Busy, "run 5 is in repair");
    runs[2].presence = Presence::Busy;
    assert_eq!(decide(runs, RepairAction::Retry, 2).unwrap_err(), Refusal::Busy);
}

#[test]
fn part_that_stopped_waiting_for_children_runs_again() {
    let run = |leaves_behind, action| {
        let run = FailedRollback {
            leaves_behind,
            suspended_part: Some("Rollback of b[0,]".into()),
            ..failed(&[2], 5)
        };
        decide([run], action, 2).unwrap().repeats
    };
    assert!(run(true, RepairAction::Retry) && !run(false, RepairAction::Retry));
    assert!(!run(true, RepairAction::Skip), "a skip leaves the children unchanged");
}

#[test]
fn reason_of_a_repeated_failure_is_its_main_cause_without_nul() {
    let failure = Failure { kind: "Err\0or".into(), ..Failure::new("", "no\nmore", "s[worker]") };
    let above = Failure::new("ChildRollbackFailedException", "", "s").caused_by([failure]);
    let reason = failed_again_reason(&above);
    assert!(reason.starts_with("its rollback failed again: Err") && reason.ends_with("or: no"), "{reason}");
    assert!(!reason.contains('\0'), "the database accepts it");
}

#[test]
fn suspended_part_runs_again_if_it_failed_because_of_its_children() {
    let run = |handling, suspended: (&str, Option<u32>)| {
        let mut run = failed(&[2], 5);
        (run.handling, run.suspended_part) = (handling, Some(suspended.0.into()));
        run.suspended_handling = suspended.1;
        decide([run], RepairAction::Retry, 2).unwrap().repeats
    };
    assert!(run(Some(0), ("Rollback of a[0,]", None)));
    assert!(run(Some(2), ("Rollback of a[0,]", Some(1))));
    assert!(!run(Some(1), ("Rollback of a[0,]", Some(1))), "the handling itself is retried");
    assert!(!run(None, ("Rollback of a[0,]", None)));
    assert!(!run(Some(0), ("Rollback of b[0,]", None)));
}

#[test]
fn child_of_a_compensation_counts_as_requested_only_without_a_waiting_parent() {
    let mut runs = family();
    runs[3].compensates = true;
    let rollback_requested = |decision: Decision| decision.revived.last().unwrap().rollback_requested;
    assert!(!rollback_requested(decide(runs.clone(), RepairAction::Retry, 5).unwrap()));
    runs[1].suspended_at = Some(at(6));
    assert!(
        rollback_requested(decide(runs, RepairAction::Retry, 5).unwrap()),
        "no run waits for it any more"
    );
}

#[test]
fn written_event_names_the_run_and_its_part() {
    let mut run = failed_with_children(&[2], 5);
    run.context = serde_json::from_value(json!({
        "Note": 7, "RollbackPathDeadlineKey": { "deadline": "2026-01-01T00:00:00Z", "source": "a" },
    }))
    .map(Some)
    .unwrap();
    let skipped = decide([run], RepairAction::Skip, 2).unwrap();
    let event = serde_json::to_value(&skipped.events[0]).unwrap();
    let lineage = json!([id(1), id(2)]);
    let expected = json!({
        "message_id": id(102), "type": "SUSPENDED", "handler": "h2", "part": "Rollback of a[0,]",
        "lineage": lineage, "handling": 0, "context": event["context"],
    });
    assert_eq!((&event, &event["context"]["Note"]), (&expected, &json!(7)));
    let run = serde_json::to_value(&skipped.revived[0]).unwrap();
    assert_eq!(run["deadlines"], json!(["2026-01-01T00:00:00Z"]));
    assert_eq!((&run["lineage"], &run["message_id"]), (&lineage, &json!(id(102))));
}

#[test]
fn remedies_have_their_stored_names() {
    let names = [RepairAction::Retry, RepairAction::Skip, RepairAction::Resolve].map(RepairAction::as_str);
    assert_eq!(names, ["retry", "skip", "resolve"]);
    let mut ids = FailedRollbacks::new(family()).ids();
    ids.sort_unstable();
    assert_eq!(ids, [2, 3, 4, 5].map(id));
}
