//! Steps with a transaction in a schema of another name.

use super::*;
use crate::support::Database;

handler! {
    RootHandler: "root-handler" on Root;
    step "0" zero => executes("SELECT 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_with_a_transaction_is_recorded_in_another_schema() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().schema("warehouse_2").only::<RootHandler>().start().await?;
    assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
    Ok(())
}
