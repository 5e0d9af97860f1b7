//! Runs that the program at hand cannot continue: they wait for one that can.

use scoop::{Handle, RunState};

use super::*;
use crate::support::{Database, Gate, eventually};

/// The saga as it was: the run is left between its two steps.
mod before {
    use super::*;

    pub(super) struct Checkout {
        pub(super) gate: Gate,
    }

    #[saga(name = "checkout")]
    #[subscribes(Root)]
    impl Checkout {
        #[step(rollback = undo)]
        async fn reserve(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            self.gate.pass().await;
            Ok(())
        }

        #[step]
        async fn charge(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Ok(())
        }

        async fn undo(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

/// The second step is gone.
mod shorter {
    use super::*;

    #[derive(Default)]
    pub(super) struct Checkout;

    #[saga(name = "checkout")]
    #[subscribes(Root)]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Ok(())
        }
    }
}

/// The second step fails, and the first has another name.
mod renamed {
    use super::*;

    #[derive(Default)]
    pub(super) struct Checkout;

    #[saga(name = "checkout")]
    #[subscribes(Root)]
    impl Checkout {
        #[step]
        async fn take(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn charge(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
            Err(SIMULATED.into())
        }
    }
}

/// The message has got a field.
mod demanding {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    pub(super) struct Priced {
        price: u32,
    }

    #[derive(Default)]
    pub(super) struct Checkout;

    #[saga(name = "checkout")]
    #[subscribes(Priced)]
    impl Checkout {
        #[step]
        async fn reserve(&self, _: &mut Scope<'_>, _: &Priced) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn charge(&self, _: &mut Scope<'_>, message: &Priced) -> Result<()> {
            panic!("where does {} come from?", message.price);
        }
    }
}

/// A run that has ended its first step, and no program that would go on with it. The handle asks
/// through a client.
async fn left_half_way(db: &Database) -> Result<Handle> {
    let gate = Gate::default();
    let scoop = db
        .scoop()
        .only::<before::Checkout>()
        .provide(before::Checkout { gate: gate.clone() });
    let scoop = scoop.start().await?;
    let root = scoop.launch(Root).await?;
    gate.arrivals(1).await;
    let stopping = tokio::spawn({
        let scoop = scoop.clone();
        async move { scoop.shutdown().await }
    });
    // The request to stop is made at the first poll; then nothing new is begun.
    tokio::task::yield_now().await;
    eventually("the engine stops", async || stops(&scoop).await).await;
    gate.open(1);
    stopping.await?;
    Ok(Scoop::client(db.pool().clone()).find(root.id()).await?)
}

/// Whether nothing is claimed any more.
async fn stops(scoop: &Scoop) -> bool {
    tokio::time::timeout(std::time::Duration::from_millis(1), scoop.shutdown())
        .await
        .is_err()
}

async fn reason(root: &Handle) -> Option<String> {
    let tree = root.tree().await.expect("the tree can be read");
    match &tree.roots()[0].state {
        RunState::Stuck { reason } => Some(reason.clone()),
        _ => None,
    }
}

/// That the run is stuck with such a program, that others are not, and that it goes on with a
/// program that fits.
async fn stuck_with<S: Saga>(other: impl Message, why: &str) -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.scoop().only::<S>().start().await?;
    eventually("the run is stuck", async || reason(&root).await.is_some()).await;
    let reason = reason(&root).await.unwrap_or_default();
    assert!(reason.contains(why), "{reason}");
    assert!(
        root.tree()
            .await?
            .to_string()
            .contains(&format!("STUCK: {reason}"))
    );

    let other = scoop.launch(other).await?;
    assert_ne!(other.ends().await?, Outcome::Unhandled);
    scoop.shutdown().await;

    let gate = Gate::default();
    let fitting = db
        .scoop()
        .only::<before::Checkout>()
        .provide(before::Checkout { gate });
    let _fitting = fitting.start().await?;
    assert_eq!(root.ends().await?, Outcome::Committed);
    db.history().await.about(&["M0"]).expect(
        "M0 EMITTED · ·
        M0 SEEN checkout ·
        M0 SUSPENDED checkout reserve next=1
        M0 SUSPENDED checkout charge
        M0 COMMITTED checkout charge",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_next_step_is_gone_waits_for_its_return() -> Result<()> {
    stuck_with::<shorter::Checkout>(Root, "is to go on with step number 1, but has only 1 steps")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_message_no_longer_fits_waits_for_a_program_that_reads_it() -> Result<()> {
    stuck_with::<demanding::Checkout>(Root, "does not fit the message type of saga `checkout`")
        .await
}

/// Here the program goes on with the step at that position, which fails; what it would have to
/// undo is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_past_a_renamed_step_waits_for_its_old_name() -> Result<()> {
    let db = Database::new().await;
    let root = left_half_way(&db).await?;
    let scoop = db.scoop().only::<renamed::Checkout>().start().await?;
    eventually("the run is stuck", async || reason(&root).await.is_some()).await;
    let reason = reason(&root).await.unwrap_or_default();
    assert!(
        reason.contains("saga `checkout` has no step `reserve`"),
        "{reason}"
    );
    scoop.shutdown().await;

    let gate = Gate::default();
    let fitting = db
        .scoop()
        .only::<before::Checkout>()
        .provide(before::Checkout { gate });
    let _fitting = fitting.start().await?;
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    db.history().await.expect(
        "M0 EMITTED · ·
        M0 SEEN checkout ·
        M0 SUSPENDED checkout reserve next=1
        M0 ROLLING_BACK checkout charge
        M0 SUSPENDED checkout RBC(reserve[0,])
        M0 SUSPENDED checkout RB(reserve[0,])
        M0 ROLLED_BACK checkout RB(reserve[0,])",
    );
    Ok(())
}
