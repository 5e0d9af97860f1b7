//! The courier service: books shipments with three shippers, none of which goes everywhere.

use scoop::prelude::*;

pub const TABLES: &str = "
    CREATE SCHEMA courier;
    CREATE TABLE courier.shipments (
        order_id int PRIMARY KEY,
        shipper  int NOT NULL,
        country  text NOT NULL
    );";

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "courier.ship")]
pub struct ShipOrder {
    pub order: i32,
    pub country: String,
    pub shipper: i32,
}

#[derive(Debug, thiserror::Error)]
#[error("shipper {shipper} does not go to {country}")]
struct NotServed {
    shipper: i32,
    country: String,
}

/// The next shipper when this one has refused.
pub fn after(shipper: i32) -> i32 {
    shipper % 3 + 1
}

/// By rule no shipper goes to Norway, the first one stays on its continent, and the second does not cross the
/// water to the islands.
fn serves(shipper: i32, country: &str) -> bool {
    let refused: &[&str] = match shipper {
        1 => &["Argentina", "Brazil", "Canada", "Ireland", "Mexico", "USA", "Venezuela"],
        2 => &["Ireland", "UK"],
        _ => &[],
    };
    country != "Norway" && !refused.contains(&country)
}

/// One shipment.
#[derive(Default)]
pub struct Courier;

#[saga]
#[subscribes(ShipOrder)]
impl Courier {
    #[step(rollback = cancel)]
    async fn book(&self, scope: &mut Scope<'_>, parcel: &ShipOrder) -> Result<()> {
        let ShipOrder { order, country, shipper } = parcel;
        if !serves(*shipper, country) {
            let (shipper, country) = (*shipper, country.clone());
            return Err(NotServed { shipper, country }.into());
        }
        sqlx::query("INSERT INTO courier.shipments VALUES ($1, $2, $3)")
            .bind(order)
            .bind(shipper)
            .bind(country)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }

    async fn cancel(&self, scope: &mut Scope<'_>, parcel: &ShipOrder, _why: &Failure) -> Result<()> {
        sqlx::query("DELETE FROM courier.shipments WHERE order_id = $1")
            .bind(parcel.order)
            .execute(scope.tx().await?)
            .await?;
        Ok(())
    }
}
