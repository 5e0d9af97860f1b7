//! Reports the results of the orders: a table, the trees of two of them, and the speed.

use std::collections::BTreeMap;
use std::time::Duration;

use scoop::prelude::*;

use crate::orders::Ended;

pub async fn print(ended: &[Ended], steps: i64, took: Duration) -> Result<()> {
    print_outcomes(ended);
    let committed = |order: &&Ended| order.outcome == Outcome::Committed;
    if let Some(order) = ended.iter().find(committed) {
        print_way(order).await?;
    }
    // The cause that comes last in a checkout leaves most to compensate.
    let rolled_back = ["Withdrawn", "NotServed", "Declined", "OutOfStock", "Discontinued"]
        .into_iter()
        .find_map(|cause| ended.iter().find(|order| cause_of(&order.outcome) == Some(cause)));
    if let Some(order) = rolled_back {
        print_way(order).await?;
    }
    print_pace(steps, took);
    Ok(())
}

/// Counts completed steps and compensations, one event each. Where a rollback only requests the rollback of the
/// children, no code of ours has run.
pub async fn count_steps(scoop: &Scoop) -> Result<i64> {
    let count = "SELECT count(*) FROM scoop.message_event
                 WHERE type = 'SUSPENDED' AND step NOT LIKE '%(rolling back child scopes)'";
    Ok(sqlx::query_scalar(count).fetch_one(scoop.pool()).await?)
}

pub fn dollars(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn print_outcomes(ended: &[Ended]) {
    let mut rows = BTreeMap::<String, (usize, i64)>::new();
    for order in ended {
        let (count, cents) = rows.entry(describe(&order.outcome)).or_default();
        *count += 1;
        *cents += order.cents;
    }
    let total = ended.iter().map(|order| order.cents).sum();
    println!("{:<28}{:>8}{:>16}", "outcome", "orders", "amount");
    for (outcome, (count, cents)) in &rows {
        println!("{outcome:<28}{count:>8}{:>16}", dollars(*cents));
    }
    println!("{:<28}{:>8}{:>16}", "all", ended.len(), dollars(total));
}

fn describe(outcome: &Outcome) -> String {
    match (outcome, cause_of(outcome)) {
        (Outcome::RolledBack(_), Some(cause)) => format!("rolled back: {cause}"),
        (Outcome::RollbackFailed(_), _) => "rollback failed".into(),
        (other, _) => other.to_string(),
    }
}

/// The name of the error type that started the rollback, in any of the services.
fn cause_of(outcome: &Outcome) -> Option<&str> {
    let Outcome::RolledBack(failure) = outcome else {
        return None;
    };
    let cause = failure.root_causes()[0];
    cause.kind.rsplit("::").next()
}

async fn print_way(order: &Ended) -> Result<()> {
    println!("\norder {}, {}", order.order, dollars(order.cents));
    print!("{}", order.handle.tree().await?);
    Ok(())
}

fn print_pace(steps: i64, took: Duration) {
    let seconds = took.as_secs_f64();
    let pace = u32::try_from(steps).map_or(0.0, |steps| f64::from(steps) / seconds);
    println!("\n{steps} steps in {seconds:.2} s: {pace:.0} steps per second");
}
