//! Limits of a saga: one run of each customer at once, a rate, a queue, and a pause.
//!
//! ```text
//! cargo run -p examples --example limits
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use scoop::operate::{OperateExt as _, WaitKind};
use scoop::pauses::PauseTarget;
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct StatementDue {
    customer: u32,
    month: u32,
}

/// Counts the runs of each customer that are in progress.
#[derive(Clone, Default)]
struct Statements {
    busy: Arc<Mutex<BTreeMap<u32, u32>>>,
}

/// In any half of a second four runs begin at most, in all processes together; and of each customer one at a time. No more than
/// twenty wait.
#[saga(concurrency(1, by = customer), rate("4/500ms"), queue = 20)]
#[subscribes(StatementDue)]
impl Statements {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, due: &StatementDue) -> Result<()> {
        let StatementDue { customer, month } = due;
        assert_eq!(self.change(*customer, 1), 1, "one at a time");
        tokio::time::sleep(Duration::from_millis(20)).await;
        println!("  customer {customer}, month {month}");
        self.change(*customer, -1);
        Ok(())
    }

    fn change(&self, customer: u32, by: i32) -> u32 {
        let mut busy = self.busy.lock().expect("no step panics");
        let count = busy.entry(customer).or_default();
        *count = count.saturating_add_signed(by);
        *count
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().provide(Statements::default()).start().await?;

    let began = Instant::now();
    let due = (0..10).map(|nth| StatementDue { customer: nth % 3, month: nth });
    for statement in scoop.launch_all(due).await? {
        assert_eq!(statement.wait().await?, Outcome::Committed);
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "the last two begin a second after the first four");

    // Nothing of the saga begins while it is paused.
    let saga = PauseTarget::saga::<Statements>();
    scoop
        .operate()
        .pauses()
        .pause(saga.clone())
        .reason("the printer is broken")
        .for_at_most(Duration::from_secs(60))
        .await?;
    let statement = scoop.launch(StatementDue { customer: 7, month: 1 }).await?;
    let why = scoop.operate().runs().explain(statement.id()).await?;
    assert_eq!(why.runs[0].run.waits_for, Some(WaitKind::Pause));
    println!("  {why}");
    // The queue takes nineteen more.
    let due = |count| (0..count).map(|nth| StatementDue { customer: nth, month: 2 });
    let refused = scoop.launch_all(due(20)).await.map(drop).expect_err("it would be too long");
    assert!(refused.is_queue_full() && refused.to_string().contains("at most 20 of its runs"));
    println!("  {refused}");
    scoop.operate().pauses().resume(saga).await?;
    assert_eq!(statement.wait().await?, Outcome::Committed);

    scoop.shutdown().await?;
    Ok(())
}
