//! In memory, and in virtual time: no server, and sleeps take no time.

use scoop::prelude::*;
use {{crate_name}}::checkout::OrderPlaced;

async fn outcome_of(city: &str) -> Result<Outcome> {
    let scoop = Scoop::in_memory().await?;
    let placed = scoop.launch(OrderPlaced { order: 7, city: city.into() }).await?;
    let outcome = placed.wait().await?;
    println!("{}", placed.tree().await?);
    scoop.shutdown().await?;
    Ok(outcome)
}

#[tokio::test(start_paused = true)]
async fn order_with_a_courier_is_committed() -> Result<()> {
    assert_eq!(outcome_of("Oslo").await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn order_without_a_courier_is_undone() -> Result<()> {
    let Outcome::RolledBack(why) = outcome_of("Atlantis").await? else { panic!("it is not undone") };
    // Not any failure: a step that asks for the database fails here, too.
    assert!(why.report().to_string().contains("no courier goes to Atlantis"), "{}", why.report());
    Ok(())
}
