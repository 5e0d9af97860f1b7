//! A new version of a program that cannot continue existing runs. Such a run is stuck, with the reason, and
//! blocks no other run. Once a program starts that can continue it, it goes on at its next step. Here the
//! versions are three types that are stored under the same name.
//!
//! ```text
//! cargo run -p examples --example stuck_runs
//! ```

use std::time::Duration;

use scoop::prelude::*;
use scoop::tree::RunState;
use scoop::{HierarchyId, Status};
use sqlx::AssertSqlSafe;

#[derive(Message, Serialize, Deserialize)]
struct LoanWanted {
    book: String,
}

mod monday {
    use super::*;

    #[derive(Default)]
    pub(super) struct Lending;

    #[saga(name = "lending")]
    #[subscribes(LoanWanted)]
    impl Lending {
        #[step(sleep = "1s")]
        async fn lend(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("monday: {} is lent", loan.book);
            Ok(())
        }

        #[step]
        async fn remind(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("monday: we would like {} back", loan.book);
            Ok(())
        }
    }
}

/// `lend` was replaced by a step that may be the same one or not: a run that completed `lend` cannot continue.
mod tuesday {
    use super::*;

    #[derive(Default)]
    pub(super) struct Lending;

    #[saga(name = "lending")]
    #[subscribes(LoanWanted)]
    impl Lending {
        #[step]
        async fn hand_out(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("tuesday: {} is handed out", loan.book);
            Ok(())
        }

        #[step]
        async fn remind(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("tuesday: we would like {} back", loan.book);
            Ok(())
        }
    }
}

/// The saga declares that it is the same step.
mod wednesday {
    use super::*;

    #[derive(Default)]
    pub(super) struct Lending;

    #[saga(name = "lending")]
    #[subscribes(LoanWanted)]
    impl Lending {
        #[step(was = "lend")]
        async fn hand_out(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("wednesday: {} is handed out", loan.book);
            Ok(())
        }

        #[step]
        async fn remind(&self, _: &mut Scope<'_>, loan: &LoanWanted) -> Result<()> {
            println!("wednesday: we would like {} back", loan.book);
            Ok(())
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // The database outlives the versions. They have a schema of their own in it.
    let database = Scoop::builder().embedded().migrate(true).client().await?;
    let schema = format!("stuck_{}", uuid::Uuid::new_v4().simple());
    let version = || Scoop::builder().postgres(database.pool().clone()).schema(&schema);

    let monday = version().only::<monday::Lending>().start().await?;
    let emma = monday.launch(LoanWanted { book: "Emma".into() }).await?.id();
    comes_to(&monday, emma, |state| *state == RunState::Sleeping).await?;
    monday.shutdown().await?;

    let tuesday = version().only::<tuesday::Lending>().start().await?;
    comes_to(&tuesday, emma, |state| matches!(state, RunState::Stuck { .. })).await?;
    let [stuck] = &*tuesday.operate().failures().stuck().await? else { panic!("one run is stuck") };
    assert!(stuck.reason.contains("was = \"lend\""), "the reason names the way out: {}", stuck.reason);
    println!("{}", tuesday.find(emma).await?.tree().await?);
    let dune = tuesday.launch(LoanWanted { book: "Dune".into() }).await?;
    assert_eq!(dune.wait().await?, Outcome::Committed, "others are not hurt");
    tuesday.shutdown().await?;

    let wednesday = version().only::<wednesday::Lending>().start().await?;
    assert_eq!(wednesday.find(emma).await?.wait().await?, Outcome::Committed);
    wednesday.shutdown().await?;

    sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).execute(database.pool()).await?;
    database.shutdown().await?;
    Ok(())
}

/// Waits until the launched saga is in such a state.
async fn comes_to(scoop: &Scoop, loan: HierarchyId, such: fn(&RunState) -> bool) -> Result<()> {
    let loan = scoop.find(loan).await?;
    while !loan.tree().await?.roots().iter().any(|run| such(&run.state)) {
        assert_eq!(loan.status().await?, Status::Unfinished);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
