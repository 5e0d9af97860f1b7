//! Parts of large trees: down to a depth, or so many runs.

use scoop::tree::BarKind;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "branches")]
struct Branch {
    levels_left: u32,
}

#[derive(Default)]
struct Branching;

#[saga(name = "branching")]
#[subscribes(Branch)]
impl Branching {
    #[step]
    async fn branch(&self, scope: &mut Scope<'_>, branch: &Branch) -> Result<()> {
        if let Some(levels_left) = branch.levels_left.checked_sub(1) {
            for _ in 0..3 {
                scope.launch(Branch { levels_left }).await?;
            }
        }
        Ok(())
    }
}

fn depths(tree: &Tree) -> Vec<usize> {
    let mut depths: Vec<_> = tree.runs().iter().map(|run| run.lineage.ids().len() - 1).collect();
    depths.sort_unstable();
    depths
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_has_as_many_runs_and_levels_as_are_asked_for() -> Result<()> {
    let run = Run::commits((Branching,), Branch { levels_left: 2 }).await?;

    let all = run.root.tree().await?;
    assert_eq!(depths(&all), [1, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3]);
    assert!(all.is_complete() && !all.to_string().contains("left out"));

    let above = run.root.tree().depth(2).await?;
    assert_eq!(depths(&above), [1, 2, 2, 2]);
    assert!(!above.is_complete() && above.to_string().contains("more runs are left out"), "{above}");
    assert!(run.root.tree().depth(3).await?.is_complete());

    let few = run.root.tree().limit(5).await?;
    assert_eq!(depths(&few), [1, 2, 2, 2, 3], "runs above come first");
    assert!(!few.is_complete());
    assert!(run.root.tree().limit(13).await?.is_complete());
    assert_eq!(depths(&run.root.tree().depth(2).limit(2).await?), [1, 2]);
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "walks")]
struct Walk {
    paces: u32,
}

#[derive(Default)]
struct Walking;

#[saga(name = "walking")]
#[subscribes(Walk)]
impl Walking {
    #[step(rollback = back)]
    async fn pace(&self, scope: &mut Scope<'_>, walk: &Walk) -> Result<Next<WalkingStep>> {
        Ok(if scope.iteration() + 1 < walk.paces { Next::Repeat } else { Next::Continue })
    }

    #[step]
    async fn stumble(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
        Err(SIMULATED.into())
    }

    async fn back(&self, _: &mut Scope<'_>, _: &Walk, _: &Failure) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_run_shows_its_ends_and_the_beginning_of_its_rollback() -> Result<()> {
    let walked = Run::rolls_back((Walking,), Walk { paces: 20 }).await?;
    let all = walked.root.tree().await?;
    let [run] = all.roots() else { panic!("{all}") };
    assert_eq!((run.events_left_out, run.events.iter().any(|event| event.follows_gap)), (0, false));
    let words = |run: &RunInfo| run.events.iter().map(|event| (event.word(), event.at)).collect::<Vec<_>>();

    let ends = walked.root.tree().events(3).await?;
    let [part] = ends.roots() else { panic!("{ends}") };
    let (all_words, total) = (words(run), run.events.len());
    let turned = all_words.iter().find(|(word, _)| *word == "began to roll back").copied();
    let expected: Vec<_> =
        all_words[..3].iter().copied().chain(turned).chain(all_words[total - 3..].iter().copied()).collect();
    assert_eq!(words(part), expected, "of {all}");
    assert_eq!(part.events_left_out, total - 7);
    let gaps: Vec<_> = part.events.iter().map(|event| event.follows_gap).collect();
    assert_eq!(gaps, [false, false, false, true, true, false, false]);
    assert_eq!(part.state, run.state);
    assert!(ends.to_string().contains("(events are left out"), "{ends}");
    assert!(
        part.events[3].duration.is_none() && part.events[4].duration.is_none(),
        "what came before is not known"
    );
    let count = |run: &RunInfo, kind| run.timeline().iter().filter(|bar| bar.kind == kind).count();
    assert_eq!((count(run, BarKind::Step), count(run, BarKind::Gap)), (21, 0), "{all}");
    assert_eq!((count(part, BarKind::Step), count(part, BarKind::Gap)), (2, 2), "{ends}");
    let gap = part.timeline().into_iter().find(|bar| bar.kind == BarKind::Gap);
    assert_eq!(gap.map(|bar| (bar.from, bar.to)), part.events[2].at.map(|at| (at, part.events[3].at)));

    let whole = walked.root.tree().events(total.div_ceil(2)).await?;
    assert_eq!((words(&whole.roots()[0]), whole.roots()[0].events_left_out), (all_words, 0));
    assert!(!whole.to_string().contains("left out"));
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "shouts")]
struct Shout {
    echoes: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "echoes")]
struct Echo;

#[derive(Default)]
struct Shouting;

#[saga(name = "shouting")]
#[subscribes(Shout)]
impl Shouting {
    #[step]
    async fn shout(&self, scope: &mut Scope<'_>, shout: &Shout) -> Result<()> {
        for _ in 0..shout.echoes {
            scope.launch(Echo).await?;
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_without_a_handler_are_limited_with_the_runs() -> Result<()> {
    for (echoes, shown, has_more, is_complete) in
        [(100, 100, false, true), (101, 100, true, true), (1_010, 100, true, true), (1_011, 100, true, false)]
    {
        let run = Run::commits((Shouting,), Shout { echoes }).await?;
        let part = run.root.tree().limit(10).await?;
        assert_eq!(part.is_complete(), is_complete, "of {echoes} messages, 1,010 were looked at");
        assert_eq!((part.unhandled().len(), part.has_more_unhandled()), (shown, has_more), "{echoes}");
        assert_eq!(part.roots()[0].unhandled.len(), shown);
        assert_eq!(part.to_string().contains("more messages without a handler"), has_more);
        let all = run.root.tree().await?;
        assert_eq!((all.unhandled().len(), all.has_more_unhandled()), (echoes as usize, false));
    }
    Ok(())
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "crowds")]
struct Crowd {
    members: u32,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "crowds.members")]
struct Member;

#[derive(Default)]
struct Crowding;

#[saga(name = "crowding")]
#[subscribes(Crowd)]
impl Crowding {
    #[step]
    async fn gather(&self, scope: &mut Scope<'_>, crowd: &Crowd) -> Result<()> {
        for _ in 0..crowd.members {
            scope.launch(Member).await?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Shoving;

#[saga(name = "shoving")]
#[subscribes(Member)]
impl Shoving {
    #[step]
    async fn shove(&self, _: &mut Scope<'_>, _: &Member) -> Result<()> {
        Err(Failure::new("shove.long", "x".repeat(100_000), "shoving").into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oldest_failures_beyond_4_mib_are_left_out_of_a_tree() -> Result<()> {
    let db = Database::new().await;
    let builder = db
        .scoop()
        .only::<Crowding>()
        .only::<Shoving>()
        .limits(scoop::Limits::default().failure_text_bytes_max(200_000));
    let scoop = builder.start().await?;
    let root = scoop.launch(Crowd { members: 50 }).await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

    let tree = root.tree().await?;
    let events = tree.runs().into_iter().flat_map(|run| &run.events);
    let failures: Vec<_> = events.filter_map(|event| Some((event.at, event.failure.as_ref()?))).collect();
    let (left_out, read): (Vec<_>, Vec<_>) =
        failures.into_iter().partition(|(_, failure)| failure.kind == "LeftOut");
    assert!((9..=11).contains(&left_out.len()), "{} of {}", left_out.len(), left_out.len() + read.len());
    let newest_left_out = left_out.iter().map(|(at, _)| *at).max();
    assert!(newest_left_out <= read.iter().map(|(at, _)| *at).min());
    let RunState::RolledBack(failure) = &tree.roots()[0].state else { panic!("{:?}", tree.roots()[0].state) };
    assert_ne!(failure.kind, "LeftOut", "the failure of the newest run is read");
    assert_eq!(tree.runs().len(), 51);
    assert!(tree.to_string().contains("rolled back: the failure is left out"));
    scoop.shutdown().await?;
    Ok(())
}
