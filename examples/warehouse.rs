//! Commands that decide. Two customers reserve units of a product of which there are enough for one of them: first by
//! plain steps, which sell what is not there, then by commands, which do not: about an entity, and about the rows of a table.
//!
//! ```text
//! cargo run -p examples --example warehouse
//! ```

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use scoop::Caller;
use scoop::entities::CommandState;
use scoop::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

/// The race: the step decides by a stock that another one changes before it has.
mod plain {
    use std::sync::Arc;

    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    pub(super) struct TakeUnits(pub(super) i64);

    pub(super) struct Shop {
        /// Two customers look at the same time.
        pub(super) both_have_looked: Arc<tokio::sync::Barrier>,
    }

    #[saga]
    #[subscribes(TakeUnits)]
    impl Shop {
        #[step]
        async fn take(&self, scope: &mut Scope<'_>, TakeUnits(units): &TakeUnits) -> Result<()> {
            let tx = scope.tx().await?;
            let stock: i64 = sqlx::query_scalar("SELECT units FROM plain_stock").fetch_one(&mut *tx).await?;
            self.both_have_looked.wait().await;
            if stock < *units {
                return Err(Error::msg("not enough units"));
            }
            sqlx::query("UPDATE plain_stock SET units = units - $1").bind(units).execute(tx).await?;
            Ok(())
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Stock {
    units: i64,
}

#[entity(name = "stock", key = Uuid)]
impl Stock {
    fn delivered(&mut self, event: &StockDelivered) {
        self.units += event.units;
    }

    fn reserved(&mut self, event: &StockReserved) {
        self.units -= event.units;
    }
}

#[derive(Message, Serialize, Deserialize)]
struct StockDelivered {
    units: i64,
}

#[derive(Message, Serialize, Deserialize)]
struct StockReserved {
    product: Uuid,
    units: i64,
}

#[derive(Message, Serialize, Deserialize)]
struct StockReservationRejected {
    product: Uuid,
    missing: i64,
}

#[derive(Serialize, Deserialize)]
struct DeliverStock {
    product: Uuid,
    units: i64,
}

#[command(entity = Stock)]
impl DeliverStock {
    fn key(&self) -> Uuid {
        self.product
    }

    fn decide(&self, _: &Stock) -> Decision<StockDelivered> {
        Decision::Accepted(StockDelivered { units: self.units })
    }
}

#[derive(Serialize, Deserialize)]
struct ReserveStock {
    product: Uuid,
    units: i64,
}

#[command(entity = Stock)]
impl ReserveStock {
    /// Customers reserve. The caller is the one that the HTTP handler names.
    fn authorize(&self, caller: &Caller) -> Result<()> {
        if caller.has_role("customer") { Ok(()) } else { Err(Error::msg("only customers reserve")) }
    }

    fn key(&self) -> Uuid {
        self.product
    }

    fn decide(&self, stock: &Stock) -> Decision<StockReserved, StockReservationRejected> {
        let Self { product, units } = *self;
        match units <= stock.units {
            true => Decision::Accepted(StockReserved { product, units }),
            false => Decision::Rejected(StockReservationRejected { product, missing: units - stock.units }),
        }
    }
}

/// A table that was there before, as entities.
mod existing {
    use scoop::entities::SqlEntity;
    use sqlx::PgConnection;

    use super::*;

    #[derive(Debug, Default, Serialize, Deserialize)]
    pub(super) struct Shelf {
        pub(super) units: i64,
    }

    #[entity(name = "shelf", key = i64, table)]
    impl Shelf {
        fn taken(&mut self, event: &UnitsTaken) {
            self.units -= event.units;
        }
    }

    impl SqlEntity for Shelf {
        async fn load_for_update(tx: &mut PgConnection, key: &i64) -> Result<Option<Self>> {
            let units = sqlx::query_scalar("SELECT units FROM shelf WHERE id = $1 FOR UPDATE").bind(key);
            Ok(units.fetch_optional(tx).await?.map(|units| Self { units }))
        }

        async fn store(&self, tx: &mut PgConnection, key: &i64) -> Result<()> {
            let write = sqlx::query("UPDATE shelf SET units = $2 WHERE id = $1").bind(key);
            write.bind(self.units).execute(tx).await?;
            Ok(())
        }
    }

    #[derive(Message, Debug, Serialize, Deserialize)]
    pub(super) struct UnitsTaken {
        pub(super) units: i64,
    }

    #[derive(Serialize, Deserialize)]
    pub(super) struct TakeFromShelf {
        pub(super) shelf: i64,
        pub(super) units: i64,
    }

    #[command(entity = Shelf)]
    impl TakeFromShelf {
        fn key(&self) -> i64 {
            self.shelf
        }

        fn decide(&self, shelf: &Shelf) -> Decision<UnitsTaken> {
            match self.units <= shelf.units {
                true => Decision::Accepted(UnitsTaken { units: self.units }),
                false => Decision::Rejected(()),
            }
        }
    }
}

/// What follows from a reservation.
#[derive(Default)]
struct Shipping;

#[saga]
#[subscribes(StockReserved)]
impl Shipping {
    #[step]
    async fn ship(&self, _: &mut Scope<'_>, reserved: &StockReserved) -> Result<()> {
        println!("{} units of {} are shipped", reserved.units, reserved.product);
        Ok(())
    }
}

/// What follows from a rejection.
#[derive(Default)]
struct Purchasing;

#[saga]
#[subscribes(StockReservationRejected)]
impl Purchasing {
    #[step]
    async fn buy(&self, _: &mut Scope<'_>, rejected: &StockReservationRejected) -> Result<()> {
        println!("{} units of {} are missing", rejected.missing, rejected.product);
        Ok(())
    }
}

/// Sends a command, and answers its id at once. A real program takes the caller from a session or a token that it has
/// verified, where this one believes a header.
async fn reserve(
    State(scoop): State<Scoop>,
    Path((product, units)): Path<(Uuid, i64)>,
    headers: HeaderMap,
) -> Result<String, StatusCode> {
    let customer = headers.get("x-customer").and_then(|name| name.to_str().ok());
    let caller = customer.map_or_else(Caller::default, |name| Caller::new(name).role("customer"));
    let sent = scoop.send(ReserveStock { product, units }).caller(caller).await;
    sent.map(|command| command.id().to_string()).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// The state of a command: `null`, `accepted`, `rejected` or `refused`.
async fn command_state(State(scoop): State<Scoop>, Path(id): Path<Uuid>) -> Result<String, StatusCode> {
    let state = async { scoop.find(id).await?.command_state().await };
    match state.await {
        Ok(state) => Ok(state.map_or("null".into(), |state| state.to_string())),
        Err(error) if error.is_not_found() => Err(StatusCode::NOT_FOUND),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let both_have_looked = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let shop = plain::Shop { both_have_looked };
    let scoop = Scoop::builder().embedded().provide(shop).start().await?;
    let table = "CREATE TABLE plain_stock AS SELECT 8::bigint AS units";
    sqlx::raw_sql(table).execute(scoop.pool()).await?;
    for taken in scoop.launch_all([plain::TakeUnits(6), plain::TakeUnits(5)]).await? {
        assert_eq!(taken.wait().await?, Outcome::Committed);
    }
    let left: i64 = sqlx::query_scalar("SELECT units FROM plain_stock").fetch_one(scoop.pool()).await?;
    println!("by plain steps: {left} units are left");
    assert_eq!(left, -3, "both were told that there is enough");

    let product = Uuid::new_v4();
    scoop.send(DeliverStock { product, units: 8 }).await?.decision().await?;
    let customer = || Caller::new("alice").role("customer");
    let six = scoop.send(ReserveStock { product, units: 6 }).caller(customer());
    let five = scoop.send(ReserveStock { product, units: 5 }).caller(customer());
    let (six, five) = tokio::try_join!(six.into_future(), five.into_future())?;
    let accepted = [six.decision().await?.is_accepted(), five.decision().await?.is_accepted()];
    assert!(accepted[0] != accepted[1], "there is enough for one of them");
    let stock = scoop.entity::<Stock>(product).await?;
    println!("by commands: {} units are left, in version {}", stock.state.units, stock.version);
    assert!(stock.state.units >= 0 && stock.version == 2);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let routes = Router::new()
        .route("/commands/{id}", get(command_state))
        .route("/reservations/{product}/{units}", post(reserve))
        .with_state(scoop.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    for (command, accepted) in [&six, &five].into_iter().zip(accepted) {
        let state = if accepted { CommandState::Accepted } else { CommandState::Rejected };
        let response = ask(address, &format!("GET /commands/{}", command.id())).await?;
        println!("GET /commands/{}: {}", command.id(), response.lines().last().unwrap_or_default());
        assert!(response.ends_with(&state.to_string()), "{response}");
        command.wait().await?;
    }
    for (customer, expected) in [("", "refused"), ("X-Customer: alice\r\n", "accepted")] {
        let request = format!("POST /reservations/{product}/1");
        let response = ask_with(address, &request, customer).await?;
        let id: Uuid = response.lines().last().unwrap_or_default().parse().expect("the id of the command");
        scoop.find(id).await?.wait().await?;
        let response = ask(address, &format!("GET /commands/{id}")).await?;
        println!("{request} {}: {expected}", customer.trim());
        assert!(response.ends_with(expected), "{response}");
    }
    for event in scoop.operate().entities().events::<Stock>(product).await? {
        println!("version {}: {} {}", event.version, event.topic, event.payload);
    }

    let table = "CREATE TABLE shelf AS SELECT 1::bigint AS id, 8::bigint AS units";
    sqlx::raw_sql(table).execute(scoop.pool()).await?;
    let take = [6, 5].map(|units| existing::TakeFromShelf { shelf: 1, units });
    for taken in scoop.launch_all(take).await? {
        assert_eq!(taken.wait().await?, Outcome::Committed);
    }
    let shelf = scoop.entity::<existing::Shelf>(1).await?;
    println!("in the table: {} units are left, in version {}", shelf.state.units, shelf.version);
    assert!([2, 3].contains(&shelf.state.units) && shelf.version == 1);
    scoop.shutdown().await?;
    Ok(())
}

/// Sends a request, and returns the response.
async fn ask(address: SocketAddr, request: &str) -> Result<String> {
    ask_with(address, request, "").await
}

/// The same, with these headers.
async fn ask_with(address: SocketAddr, request: &str, headers: &str) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "{request} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    connection.read_to_string(&mut response).await?;
    Ok(response)
}
