//! A program that refers to the library, and to nothing in it.

use saga_library as _;
use sagas::{Outcome, Result, Scoop};

#[tokio::test]
async fn sagas_of_a_linked_library_run() -> Result<()> {
    let scoop = Scoop::builder().in_memory().expects(["library-checkout"]).start().await?;
    let order = scoop.launch_untyped("library.orders", serde_json::json!({ "order": 8 })).required().await?;
    assert_eq!(order.wait().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
