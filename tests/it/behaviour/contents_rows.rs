//! Values in damaged or unusual rows, as operators see them.

use scoop::operate::Content;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "stored.order")]
struct Order;

#[derive(Default)]
struct Orders;

#[saga(name = "stored-orders")]
#[subscribes(Order)]
impl Orders {
    #[step]
    async fn charge(&self, _: &mut Scope<'_>, _: &Order) -> Result<u32> {
        Ok(100)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_value_that_is_stored_in_few_bytes_is_left_out() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Orders>().start().await?;
    assert_eq!(scoop.launch(Order).await?.ends().await?, Outcome::Committed);
    let run = scoop.operate().runs().list().page(1).await?.runs.remove(0);
    for (text, is_shown) in [("repeat('x', 1000000)", false), ("repeat('x', 60000)", true)] {
        db.execute(&format!("UPDATE scoop.message SET payload = jsonb_build_object('text', {text})")).await;
        db.execute(&format!("UPDATE scoop.return_value SET value = jsonb_build_object('text', {text})"))
            .await;
        let large = "SELECT count(*) FROM scoop.message WHERE pg_column_size(payload) > 20000";
        assert_eq!(db.number(large).await, 0);
        let contents = scoop.operate().runs().contents(&run).await?;
        let values = contents.values.iter().map(|value| &value.value);
        for content in values.chain(&contents.message) {
            match content {
                Content::Shown(_) => assert!(is_shown, "{text}"),
                other => assert_eq!(other.to_string(), "(too large to be shown: 1000012 bytes)"),
            }
        }
        assert!(contents.message.is_some() && !contents.values.is_empty());
    }
    scoop.shutdown().await?;
    Ok(())
}
