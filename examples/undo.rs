//! Rolls back finished work, long after: a whole hierarchy or a part of it. The answer gives the fate of the
//! request.
//!
//! ```text
//! cargo run -p examples --example undo
//! ```

use std::time::Duration;

use scoop::prelude::*;
use scoop::requests::RollbackAnswer;
use scoop::tree::RunState;

#[derive(Message, Serialize, Deserialize)]
struct FurnitureOrdered {
    parcels: Vec<String>,
}

#[derive(Message, Serialize, Deserialize)]
struct SendFurniture {
    parcel: String,
}

/// A message that no saga handles.
#[derive(Message, Serialize, Deserialize)]
struct FurnitureAdmired;

#[derive(Default)]
struct FurnitureShop;

#[saga]
#[subscribes(FurnitureOrdered)]
impl FurnitureShop {
    #[step(rollback = give_back)]
    async fn charge(&self, _: &mut Scope<'_>, _: &FurnitureOrdered) -> Result<()> {
        println!("  the money is ours");
        Ok(())
    }

    #[step]
    async fn send(&self, scope: &mut Scope<'_>, order: &FurnitureOrdered) -> Result<()> {
        for parcel in &order.parcels {
            scope.launch(SendFurniture { parcel: parcel.clone() }).await?;
        }
        Ok(())
    }

    /// Runs when all parcels are back. The failure has the source and the reason of the request.
    async fn give_back(&self, _: &mut Scope<'_>, _: &FurnitureOrdered, why: &Failure) -> Result<()> {
        println!("  the money goes back: {why}");
        Ok(())
    }
}

#[derive(Default)]
struct FurnitureMovers;

#[saga]
#[subscribes(SendFurniture)]
impl FurnitureMovers {
    #[step(rollback = fetch)]
    async fn bring(&self, _: &mut Scope<'_>, it: &SendFurniture) -> Result<()> {
        println!("  the {} goes out", it.parcel);
        Ok(())
    }

    async fn fetch(&self, _: &mut Scope<'_>, it: &SendFurniture, _: &Failure) -> Result<()> {
        println!("  the {} comes back", it.parcel);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let order = FurnitureOrdered { parcels: vec!["table".into(), "lamp".into()] };

    // Not possible yet: request it again later, or cancel the order.
    let order = scoop.launch(order).delay(Duration::from_millis(700)).await?;
    let answer = scoop.rollback(order.id(), "second thoughts").await?;
    assert_eq!(answer, RollbackAnswer::StillRunning);
    assert_eq!(order.wait().await?, Outcome::Committed);

    println!("one parcel comes back");
    let tree = order.tree().await?;
    let parcel = tree.roots()[0].children[0].id();
    assert_eq!(scoop.rollback(parcel, "a scratch").await?, RollbackAnswer::Accepted);
    loop {
        let tree = order.tree().await?;
        if matches!(tree.roots()[0].children[0].state, RunState::RolledBack(_)) {
            assert_eq!(tree.roots()[0].state, RunState::Committed, "what is above does not change\n{tree}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    println!("everything comes back");
    let answer = scoop.rollback(order.id(), "the customer moves abroad").source("support").await?;
    assert_eq!(answer, RollbackAnswer::Accepted);
    let Outcome::RolledBack(why) = order.wait().await? else { panic!("{}", order.tree().await?) };
    assert_eq!((&*why.source, &*why.message), ("support", "the customer moves abroad"), "{}", why.report());
    println!("{}", order.tree().await?);

    let answer = scoop.rollback(order.id(), "again").await?;
    assert_eq!(answer, RollbackAnswer::AlreadyRolledBack);
    let admired = scoop.launch(FurnitureAdmired).await?;
    assert_eq!(scoop.rollback(admired.id(), "ugly after all").await?, RollbackAnswer::NoHandlers);

    scoop.shutdown().await?;
    Ok(())
}
