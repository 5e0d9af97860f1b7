//! A program without sagas, which launches, waits and rests. Faults of its connections must be invisible to it:
//! no launch may fail, be lost, or take effect twice.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use scoop::Outcome;
use scoop::prelude::*;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use uuid::Uuid;

use crate::dice::Dice;
use crate::sagas::Run;

/// How its connections are named.
pub(crate) const NAME: &str = "chaos-caller";

/// Longer than any fault lasts.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// How long it rests at most, in milliseconds: often long enough for its connections to be cut meanwhile.
const REST_MAX: u32 = 600;

/// The deadline of each call, which none of them misses.
const DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// The first of its numbers, which no other program uses.
const FIRST: i64 = 1_000_000_000;

/// Its launches and their results.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The hierarchies by number; `None` for launches that returned an error.
    launched: BTreeMap<i64, Option<Uuid>>,
    /// Errors that occurred although the server was back.
    failures: Vec<String>,
    /// How long a launch took at most.
    pub(crate) longest: Duration,
}

/// Launches messages one after another until it is stopped.
pub(crate) async fn call(
    database: String,
    seed: u64,
    stop: tokio::sync::watch::Receiver<bool>,
) -> Result<Calls> {
    let options: PgConnectOptions = database.parse()?;
    let pool = PgPoolOptions::new().connect_lazy_with(options.application_name(NAME));
    let client = Scoop::builder().postgres(pool).retry_for(RETRY_FOR).client().await?;
    let (mut dice, mut calls) = (Dice::new(seed, 2), Calls::default());
    while !*stop.borrow() {
        tokio::time::sleep(Duration::from_millis(dice.small(REST_MAX).into())).await;
        let crowd = 1 + dice.below(3);
        for (number, handle) in calls.launch(&client, crowd).await {
            match handle.wait().await {
                Ok(Outcome::Committed) => {}
                ended => calls.failures.push(format!("call {number} was launched, and ended as {ended:?}")),
            }
            if let Err(error) = handle.tree().await {
                calls.failures.push(format!("the tree of call {number} cannot be read: {error}"));
            }
        }
    }
    Ok(calls)
}

impl Calls {
    /// Launches so many messages at once, which may share a commit.
    async fn launch(&mut self, client: &Scoop, crowd: usize) -> Vec<(i64, scoop::Handle)> {
        let begin = Instant::now();
        let numbers = (FIRST + self.count()..).take(crowd);
        let launches = numbers.map(async |number| {
            let launch = client.launch(Run { number, fails: false });
            (number, launch.deadline(DEADLINE).await)
        });
        let launches = futures_util::future::join_all(launches).await;
        self.longest = self.longest.max(begin.elapsed());
        let mut handles = vec![];
        for (number, launch) in launches {
            self.launched.insert(number, launch.as_ref().ok().map(|handle| handle.id().uuid()));
            match launch {
                Ok(handle) => handles.push((number, handle)),
                Err(error) => self.failures.push(format!("call {number} was not launched: {error}")),
            }
        }
        handles
    }

    /// The number of launches.
    pub(crate) fn count(&self) -> i64 {
        i64::try_from(self.launched.len()).unwrap_or(i64::MAX)
    }

    /// Lost and repeated launches.
    pub(crate) async fn audit(&self, pool: &PgPool) -> Result<(Vec<String>, Vec<String>)> {
        let launched = "SELECT (m.payload ->> 'number')::bigint, e.cooperation_lineage[1]
                        FROM scoop.message m JOIN scoop.message_event e ON e.message_id = m.id AND e.type = 'EMITTED'
                        WHERE m.topic = 'chaos.errand' AND (m.payload ->> 'number')::bigint >= $1";
        let rows: Vec<(i64, Uuid)> = sqlx::query_as(launched).bind(FIRST).fetch_all(pool).await?;
        let mut there: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
        for (number, root) in rows {
            there.entry(number).or_default().push(root);
        }
        let (mut losses, mut doubles) = (self.failures.clone(), vec![]);
        for (number, root) in &self.launched {
            match there.remove(number).as_deref() {
                Some([found]) if root.is_none_or(|root| root == *found) => {}
                Some([_]) => {
                    losses.push(format!("call {number} is not the one that was returned to the caller"))
                }
                Some(several) => doubles.push(format!("call {number} is there {} times", several.len())),
                None if root.is_some() => losses.push(format!("call {number} is not there")),
                None => {}
            }
        }
        doubles.extend(there.keys().map(|number| format!("call {number} was never made")));
        Ok((losses, doubles))
    }
}
