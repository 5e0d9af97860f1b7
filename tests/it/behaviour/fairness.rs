//! The order of claims when there are more runs than slots.

use super::*;
use crate::support::{Database, Gate};

handler! {
    Busy(gate): "busy" on Root;
    step "hold" hold => at_gate();
}

handler! {
    /// The only run of its saga, beside all those.
    #[derive(Default)]
    Lone(gate): "lone" on Child;
    step "arrive" arrive => at_gate();
}

/// The builder of a program with so many slots.
fn program(db: &Database, busy: &Gate, lone: &Gate, concurrency: usize) -> scoop::Builder {
    let scoop = db.scoop().only::<Busy>().only::<Lone>().concurrency(concurrency);
    scoop.provide(Busy { gate: busy.clone() }).provide(Lone { gate: lone.clone() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_run_is_in_the_next_claim_beside_a_backlog() -> Result<()> {
    let db = Database::new().await;
    let (busy, lone) = (Gate::default(), Gate::default());
    let scoop = program(&db, &busy, &lone, 2).start().await?;
    scoop.launch_all((0..100).map(|_| Root)).await?;
    busy.arrivals(2).await;
    let child = scoop.launch(Child).await?;

    busy.open(1);
    lone.arrivals(1).await;
    assert_eq!(busy.arrived(), 0, "some of the backlog came first");
    lone.open(1);
    assert_eq!(child.ends().await?, Outcome::Committed);
    busy.open(99);
    Ok(())
}

/// A few slots are spare, so it need not even wait for one to become free.
#[tokio::test(flavor = "multi_thread")]
async fn a_lone_run_that_is_launched_here_begins_beside_a_crowd_that_does_not_end() -> Result<()> {
    let db = Database::new().await;
    let (busy, lone) = (Gate::default(), Gate::default());
    let scoop = program(&db, &busy, &lone, 32).start().await?;
    scoop.launch_all((0..100).map(|_| Root)).await?;
    busy.arrivals(30).await;

    let child = scoop.launch(Child).await?;
    lone.arrivals(1).await;
    lone.open(1);
    assert_eq!(child.ends().await?, Outcome::Committed);
    // One of them may have been the first, while the claimer held all other slots.
    assert!(busy.arrived() <= 1, "the crowd has taken the spare slots");
    busy.open(100);
    Ok(())
}

/// Also in the first claim, when nothing is under way.
#[tokio::test(flavor = "multi_thread")]
async fn the_slots_go_to_the_handlers_in_turns() -> Result<()> {
    let db = Database::new().await;
    let (busy, lone) = (Gate::default(), Gate::default());
    program(&db, &busy, &lone, 1).start().await?.shutdown().await?;
    let client = Scoop::client(db.another_pool(1).await);
    client.launch_all((0..10).map(|_| Root)).await?;
    client.launch_all((0..10).map(|_| Child)).await?;

    let scoop = program(&db, &busy, &lone, 4).start().await?;
    busy.arrivals(2).await;
    lone.arrivals(2).await;
    assert_eq!((busy.arrived(), lone.arrived()), (0, 0));
    busy.open(10);
    lone.open(10);
    scoop.shutdown().await?;
    Ok(())
}

/// A run that another session has locked does not block others.
#[tokio::test(flavor = "multi_thread")]
async fn locked_run_is_passed_over() -> Result<()> {
    let db = Database::new().await;
    let (busy, lone) = (Gate::default(), Gate::default());
    program(&db, &busy, &lone, 1).start().await?.shutdown().await?;
    let client = Scoop::client(db.another_pool(1).await);
    let child = client.launch(Child).await?;
    client.launch_all((0..2).map(|_| Root)).await?;
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT FROM scoop.run WHERE handler = 'lone' FOR UPDATE").execute(&mut *other).await?;

    let scoop = program(&db, &busy, &lone, 1).start().await?;
    busy.arrivals(1).await;
    busy.open(2);
    busy.arrivals(1).await;
    assert_eq!(lone.arrived(), 0);
    lone.open(1);
    other.rollback().await?;
    assert_eq!(scoop.find(child.id()).await?.ends().await?, Outcome::Committed);
    Ok(())
}

mod of_many {
    use super::*;

    /// Sagas that all handle the same message, and the builder that has them all.
    macro_rules! sagas {
        ($($saga:ident $name:literal,)*) => {
            $(
                #[derive(Default)]
                struct $saga;

                #[saga(name = $name)]
                #[subscribes(Root)]
                impl $saga {
                    #[step]
                    async fn step(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
                        Ok(())
                    }
                }
            )*

            fn all(builder: scoop::Builder) -> scoop::Builder {
                builder$(.only::<$saga>())*
            }
        };
    }

    sagas! {
        A "many-a", B "many-b", C "many-c", D "many-d", E "many-e", F "many-f", G "many-g", H "many-h",
        I "many-i", J "many-j", K "many-k", L "many-l", M "many-m", N "many-n", O "many-o", P "many-p",
        Q "many-q", R "many-r", S "many-s", T "many-t", U "many-u", V "many-v", W "many-w", X "many-x",
    }

    /// Claims look for the handlers that have ready runs.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_program_with_many_handlers_serves_them_all() -> Result<()> {
        let db = Database::new().await;
        let elsewhere = db.scoop().only::<Lone>().start().await?;
        elsewhere.shutdown().await?;
        let client = Scoop::client(db.another_pool(1).await);
        client.launch(Child).await?;
        let scoop = all(db.scoop()).concurrency(3).start().await?;
        let roots = scoop.launch_all((0..3).map(|_| Root)).await?;
        for root in roots {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        assert_eq!(db.history().await.count("COMMITTED"), 3 * 24);
        assert_eq!(db.number("SELECT count(*) FROM scoop.run WHERE handler = 'lone'").await, 1);
        Ok(())
    }
}
