use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "orders.placed")]
struct OrderPlaced { order: i64, sku: String }

#[derive(Debug, thiserror::Error, Serialize, Deserialize, FailureCode)]
#[failure(code = "courier.refused")]
#[error("no courier for order {0}")]
struct Refused(i64);

#[derive(Default)]
struct Checkout;

#[saga]
#[subscribes(OrderPlaced)]
impl Checkout {
    #[step(rollback = release)]
    async fn reserve(&self, scope: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        let update = sqlx::query("UPDATE stock SET units = units - 1 WHERE sku = $1").bind(&order.sku);
        update.execute(scope.tx().await?).await?;
        Ok(())
    }

    async fn release(&self, scope: &mut Scope<'_>, order: &OrderPlaced, _: &Failure) -> Result<()> {
        let update = sqlx::query("UPDATE stock SET units = units + 1 WHERE sku = $1").bind(&order.sku);
        update.execute(scope.tx().await?).await?;
        Ok(())
    }

    // Before the charge: a refund is also due for a charge whose answer was lost.
    #[step(rollback = refund)]
    async fn bill(&self, _: &mut Scope<'_>, _: &OrderPlaced) -> Result<()> {
        Ok(())
    }

    #[step(retry(max = 5, backoff = "1s..1 minute"))]
    async fn charge(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<()> {
        charge_card(order.order).await
    }

    #[step]
    async fn book(&self, _: &mut Scope<'_>, order: &OrderPlaced) -> Result<(), Refused> {
        book_courier(order.order).await
    }

    async fn refund(&self, _: &mut Scope<'_>, order: &OrderPlaced, _: &Failure) -> Result<()> {
        refund_card(order.order).await
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    let tables = "DROP TABLE IF EXISTS stock; CREATE TABLE stock (sku text, units int); INSERT INTO stock VALUES ('chair', 9)";
    sqlx::raw_sql(tables).execute(scoop.pool()).await?;
    let order = scoop.launch(OrderPlaced { order: 7, sku: "chair".into() }).unique("order 7").await?;
    println!("{}", order.wait().await?);
    let left: i32 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(scoop.pool()).await?;
    assert_eq!(left, 9);
    scoop.shutdown().await?;
    Ok(())
}

// The providers: each knows the order, and does nothing twice for it.
async fn charge_card(order: i64) -> Result<()> {
    println!("charged order {order}");
    Ok(())
}

async fn refund_card(order: i64) -> Result<()> {
    println!("refunded order {order}");
    Ok(())
}

async fn book_courier(order: i64) -> Result<(), Refused> {
    Err(Refused(order))
}
