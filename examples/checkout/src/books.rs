//! Audits the books: the data of each service, and of the provider, must match the committed orders, to the
//! unit and to the cent.
//!
//! Only an auditor may look into the tables of all services at once.

use std::collections::BTreeMap;

use scoop::prelude::*;
use sqlx::PgPool;

use crate::data::Shop;
use crate::orders::Ended;
use crate::provider::Provider;

/// Amounts by order or by product.
type Amounts = BTreeMap<i32, i64>;

/// Prints the comparisons and the differences. Returns whether there are no differences.
///
/// `unsettled` are orders that await an operator, since the provider has refused a refund: they are reserved and
/// paid, and no parcel is on the way.
pub async fn check(
    scoop: &Scoop,
    provider: &Provider,
    shop: &Shop,
    ended: &[Ended],
    unsettled: &[Ended],
) -> Result<bool> {
    let pool = scoop.pool();
    let committed = |order: &&Ended| order.outcome == Outcome::Committed;
    let sold = || ended.iter().filter(committed);
    let parcels: Amounts = sold().map(|order| (order.order, 1)).collect();
    let due: Amounts = sold().chain(unsettled).map(|order| (order.order, order.cents)).collect();
    let open: Amounts = due.keys().map(|order| (*order, 1)).collect();
    let reserved: Vec<i32> = due.keys().copied().collect();
    let given = shop.orders.iter().map(|order| order.order);
    let all = ended.iter().chain(unsettled).map(|order| order.order);
    let placed: Amounts = given.chain(all).map(|order| (order, 1)).collect();
    let mut finished = finished(ended);
    finished.extend(unsettled.iter().map(|order| (order.order, 1)));

    println!();
    let compared = [
        compare("orders finished", &placed, &finished),
        compare("orders confirmed", &open, &amounts(pool, CONFIRMED).await?),
        compare(
            "units off the shelves",
            &units_in(pool, &reserved).await?,
            &amounts(pool, UNITS_GONE).await?,
        ),
        compare("cents paid, as we know", &due, &amounts(pool, PAID).await?),
        compare("cents paid, as the provider knows", &due, &ledger(provider)?),
        compare("parcels on the way", &parcels, &amounts(pool, PARCELS).await?),
    ];
    let balanced = compared.iter().all(|agrees| *agrees);
    println!("{}", if balanced { "the books balance" } else { "THE BOOKS DO NOT BALANCE" });
    Ok(balanced)
}

const CONFIRMED: &str = "SELECT id, 1::bigint FROM orders.orders WHERE status <> 'rejected'";
const UNITS_GONE: &str = "SELECT id, (received - units)::bigint FROM stock.products";
const PAID: &str = "SELECT order_id, sum(cents)::bigint FROM payments.payments
                    WHERE NOT refunded GROUP BY order_id";
const PARCELS: &str = "SELECT order_id, count(*) FROM courier.shipments GROUP BY order_id";

async fn amounts(pool: &PgPool, query: &'static str) -> Result<Amounts> {
    let rows: Vec<(i32, i64)> = sqlx::query_as(query).fetch_all(pool).await?;
    Ok(rows.into_iter().collect())
}

/// The units of each product in these orders.
async fn units_in(pool: &PgPool, orders: &[i32]) -> Result<Amounts> {
    let query = "SELECT product_id, sum(units) FROM orders.lines
                 WHERE order_id = ANY($1) GROUP BY product_id";
    let rows: Vec<(i32, i64)> = sqlx::query_as(query).bind(orders).fetch_all(pool).await?;
    Ok(rows.into_iter().collect())
}

/// The orders that were carried out or completely rolled back.
fn finished(ended: &[Ended]) -> Amounts {
    let finished = |order: &&Ended| matches!(order.outcome, Outcome::Committed | Outcome::RolledBack(_));
    ended.iter().filter(finished).map(|order| (order.order, 1)).collect()
}

/// Charges less refunds, by order.
fn ledger(provider: &Provider) -> Result<Amounts> {
    let mut paid = Amounts::new();
    for entry in provider.entries()? {
        *paid.entry(entry.order).or_default() += entry.cents;
    }
    Ok(paid)
}

/// Prints one line, and one more for each key where the two differ.
fn compare(what: &str, expected: &Amounts, found: &Amounts) -> bool {
    let amount = |amounts: &Amounts, key| amounts.get(&key).copied().unwrap_or_default();
    let mut keys: Vec<i32> = expected.keys().chain(found.keys()).copied().collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| amount(expected, *key) != amount(found, *key));
    let (due, is): (i64, i64) = (expected.values().sum(), found.values().sum());
    let verdict = if keys.is_empty() { "agrees" } else { "DIFFERS" };
    println!("{what:<36}{is:>12} of {due:>12}  {verdict}");
    for key in &keys {
        println!("    number {key}: {} instead of {}", amount(found, *key), amount(expected, *key));
    }
    keys.is_empty()
}
