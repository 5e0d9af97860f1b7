//! Failed rollbacks and repairs in lists, trees and time lines.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_is_found_by_its_reason_and_its_failure_before_and_after_its_repair() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    let tree = broken.root.tree().await?;
    let RunState::RollbackFailed(failed) = &tree.roots()[0].state else { panic!("{tree}") };
    let codes = [&failed.cause.kind, &failed.failure.kind];
    assert_ne!(codes[0], codes[1]);
    let found = async || -> Result<Vec<RunPhase>> {
        let mut phases = vec![];
        for code in codes {
            let runs =
                broken.scoop.operate().runs().list().handler("root-handler").failed_with(code).await?.runs;
            phases.extend(runs.into_iter().map(|run| run.phase));
        }
        Ok(phases)
    };
    assert_eq!(found().await?, [RunPhase::RollbackFailed; 2]);
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(found().await?, [RunPhase::RollbackFailed; 2]);
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    assert_eq!(found().await?, [RunPhase::RolledBack; 2]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_left_out_of_a_repaired_rollback_are_a_gap() -> Result<()> {
    let broken = Broken::by(&["root 1", "root 0"], alone).await?;
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    broken.faults.mend("root 1");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(broken.failed_parts().await?, ["Rollback of 1[0,]", "Rollback of 1[0,]", "Rollback of 0[0,]"]);
    let failed = broken.failed("root-handler").await?;
    assert_eq!(broken.scoop.skip(failed.lineage.id(), "").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;

    let all = broken.root.tree().await?;
    let part = broken.root.tree().events(2).await?;
    let (all_events, events) = (&all.roots()[0].events, &part.roots()[0].events);
    assert_eq!(part.roots()[0].events_left_out, all_events.len() - events.len());
    // There is a gap where events are left out, and nowhere else.
    for (before, event) in events.iter().zip(&events[1..]) {
        let between = all_events.iter().filter(|it| it.at > before.at && it.at < event.at).count();
        assert_eq!(event.follows_gap, between > 0, "{event}\n{part}\n{all}");
    }
    let shown = events.iter().filter(|event| event.follows_gap).count();
    assert_eq!(part.to_string().matches("(events are left out").count(), shown, "{part}");
    let bars = part.timeline();
    let bars: Vec<_> = bars.iter().filter(|bar| bar.kind == scoop::tree::BarKind::Gap).collect();
    assert_eq!(bars.len(), shown, "{part}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_of_a_part_are_those_on_its_runs() -> Result<()> {
    let broken = Broken::by(&["child 0", "other child 0"], two_children).await?;
    let (child, other) = (broken.id_of("child-handler").await?, broken.id_of("other-child-handler").await?);
    assert_eq!(broken.scoop.skip(child, "").await?, RepairAnswer::Accepted);
    // The root fails again because of the other child. While it decides on that, a repair is refused.
    broken.root.comes_to(rests).await?;
    assert_eq!(broken.scoop.skip(other, "").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    let done = broken.scoop.interventions(broken.root.id()).await?;
    assert_eq!(done.iter().map(|done| done.run.uuid()).collect::<Vec<_>>(), [child, other]);
    let tree = || broken.root.tree();
    for whole in [tree().await?, tree().events(1).await?, tree().depth(3).await?, tree().limit(4).await?] {
        assert!(whole.is_complete() && whole.roots()[0].interventions.is_empty(), "{whole}");
        for done in &done {
            let of_run = whole.runs().into_iter().find(|run| run.id() == done.run).expect("it is shown");
            assert_eq!(of_run.interventions, std::slice::from_ref(done), "{whole}");
        }
    }
    let part = tree().limit(2).await?;
    let shown: usize = part.runs().iter().map(|run| run.interventions.len()).sum();
    assert_eq!((shown, part.is_complete()), (1, false), "{part}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn interventions_between_the_first_and_the_last_of_a_run_are_left_out_and_counted() -> Result<()> {
    let broken = Broken::by(&["root 1"], alone).await?;
    for _ in 0..5 {
        assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
        broken.root.comes_to(rests).await?;
    }
    let done = broken.scoop.interventions(broken.root.id()).await?;
    assert_eq!(done.len(), 5);
    for all in [broken.root.tree().await?, broken.root.tree().events(3).await?] {
        let run = &all.roots()[0];
        assert_eq!((&run.interventions, run.interventions_left_out), (&done, 0));
        assert!(!all.to_string().contains("interventions are left out"), "{all}");
    }
    for (count, left_out, text) in
        [(2, 1, "(1 intervention is left out: see"), (1, 3, "(3 interventions are left out: see")]
    {
        let part = broken.root.tree().events(count).await?;
        let run = &part.roots()[0];
        assert_eq!(run.interventions, [&done[..count], &done[5 - count..]].concat());
        assert_eq!(run.interventions_left_out, left_out);
        assert!(part.to_string().contains(text), "{part}");
        let bars = part.timeline();
        let gap = bars.iter().find(|bar| bar.name == "interventions are left out").expect("it is shown");
        assert_eq!((gap.kind, gap.from), (scoop::tree::BarKind::Gap, done[count - 1].at));
        assert_eq!(gap.to, Some(done[5 - count].at));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_pages() -> Result<()> {
    let broken = Broken::by(&["grandchild 0"], three_levels).await?;
    let all = broken.scoop.failed_rollbacks().await?;
    let mut paged: Vec<FailedRollback> = vec![];
    loop {
        let page = broken.scoop.failed_rollbacks().limit(2);
        let page = match paged.last() {
            Some(last) => page.after(last).await?,
            None => page.await?,
        };
        assert!(page.len() <= 2);
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    let lineages =
        |list: &[FailedRollback]| list.iter().map(|failed| failed.lineage.clone()).collect::<Vec<Lineage>>();
    assert_eq!(lineages(&paged), lineages(&all));
    assert!(all.is_sorted_by(|a, b| a.at >= b.at));
    Ok(())
}
