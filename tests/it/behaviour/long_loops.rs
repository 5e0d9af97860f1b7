//! Rollbacks of runs with more history than is read at a time.

use super::*;
use crate::support::compensated;

/// How often [`Loops::turn`] and [`Loops::walk`] are run.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "long-loops")]
struct Round {
    turns: u32,
    walks: u32,
}

/// The child of an iteration, which says which that is.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "long-loops-turn", reply = u32)]
struct Turned(u32);

handler! {
    Turning: "turning" on Turned;
    #[step(rollback = unact)]
    async fn act(&self, scope: &mut Scope<'_>, turned: &Turned) -> Result<()> {
        scope.reply(turned, turned.0)
    }

    rollback unact => done();
}

/// A value from before the loops.
#[derive(Serialize, Deserialize)]
struct Price(u32);

#[derive(Serialize, Deserialize)]
struct Turn(u32);

#[derive(Serialize, Deserialize)]
struct Walk(u32);

handler! {
    /// A step that is repeated, then two in turns; at last it fails.
    Loops: "long-loops" on Round;
    #[step(rollback = unprice)]
    async fn price(&self, _: &mut Scope<'_>, _: &Round) -> Result<Price> {
        Ok(Price(7))
    }

    #[step(rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, round: &Round) -> Result<With<LoopsStep, Turn>> {
        let n = scope.iteration();
        scope.launch(Turned(n)).await?;
        Ok(if n + 1 < round.turns { Next::Repeat } else { Next::Continue }.with(Turn(n)))
    }

    #[step(rollback = unwalk, finally = rest)]
    async fn walk(&self, _: &mut Scope<'_>, _: &Round, last: Option<&Walk>) -> Result<Walk> {
        Ok(Walk(last.map_or(0, |last| last.0 + 1)))
    }

    #[step]
    async fn look(&self, _: &mut Scope<'_>, round: &Round, walk: &Walk) -> Result<Next<LoopsStep>> {
        Ok(if walk.0 + 1 < round.walks { Next::goto(LoopsStep::Walk) } else { Next::Continue })
    }

    step "end" end => fails(SIMULATED).silently();

    async fn unprice(&self, scope: &mut Scope<'_>, _: &Round, price: &Price, _: &Failure) -> Result<()> {
        assert_eq!(price.0, 7);
        compensated(scope);
        Ok(())
    }

    async fn unturn(
        &self,
        scope: &mut Scope<'_>,
        _: &Round,
        turn: &Turn,
        price: &Price,
        _: &Failure,
    ) -> Result<()> {
        assert_eq!((turn.0, price.0), (scope.iteration(), 7));
        let children = scope.children().await?;
        assert_eq!(children.len(), 1, "of this iteration");
        compensated(scope);
        Ok(())
    }

    async fn rest(&self, scope: &mut Scope<'_>, _: &Round) -> Result<()> {
        assert!(!scope.step().starts_with("Rollback"), "it was cleaned up after every execution");
        Ok(())
    }

    async fn unwalk(
        &self,
        scope: &mut Scope<'_>,
        _: &Round,
        walk: &Walk,
        price: &Price,
        _: &Failure,
    ) -> Result<()> {
        assert_eq!((scope.iteration(), price.0), (0, 7));
        let counted = compensated(scope);
        assert_eq!(u32::try_from(counted).ok(), Some(69 - walk.0), "the newest one first");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_iteration_of_a_long_loop_is_undone_with_its_own_value() -> Result<()> {
    let run = Run::launch((Loops, Turning), Round { turns: 150, walks: 70 }).await?;
    let Outcome::RolledBack(failure) = run.root.ends().await? else { panic!("it fails") };
    assert_eq!(failure.message, SIMULATED.0);

    let turns = (0..150).rev().flat_map(|n| {
        ["rollback turning/act it=0\n".to_owned(), format!("rollback long-loops/turn it={n}\n")]
    });
    let walks = std::iter::repeat_n("rollback long-loops/walk it=0\n".to_owned(), 70);
    let calls: String = walks.chain(turns).chain(["rollback long-loops/price it=0".to_owned()]).collect();
    run.calls().expect(&calls);
    run.history().await;
    Ok(())
}
