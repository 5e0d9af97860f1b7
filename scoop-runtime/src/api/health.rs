//! The health of a process, for probes of an orchestrator.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::time::Instant;

use super::scoop::Scoop;
use crate::engine::EngineState;

/// The time for which a probe waits for the database.
const DATABASE_MAX: Duration = Duration::from_secs(2);

/// The health of a process: the result of [`Scoop::health`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The time in which the database answered a short statement; `None` if it failed, or took longer than 2 s.
    pub database: Option<Duration>,
    /// The state of the engine.
    pub engine: EngineState,
    /// Whether the connection is open that shows to other workers that this process lives. False for a client.
    pub has_session: bool,
    /// Whether this process and its sagas are registered in the database. If a test suite has emptied the tables, they are
    /// registered again within a minute, and messages launched until then have no handler. False for a client, and if the
    /// database does not answer.
    pub is_registered: bool,
    /// For how long the first ready run or deadline of the sagas of this process has been due. Zero for a client.
    pub lag: Duration,
    /// How far the clock of the server is behind the newest recorded events: it was set back, such as by a fail-over. Until it
    /// has caught up, ready runs rest, and new launches go on. Zero if the database does not answer.
    pub clock_lag: Duration,
}

impl Health {
    /// Whether the process can recover without a restart. An outage of the database is no reason to restart.
    pub fn is_live(&self) -> bool {
        self.engine != EngineState::Failed
    }

    /// Whether the process can take requests: the database answers, and the engine, if there is one, runs with its session and
    /// is registered.
    pub fn is_ready(&self) -> bool {
        let engine_works = match self.engine {
            EngineState::Absent => true,
            EngineState::Running => self.has_session && self.is_registered,
            EngineState::Stopping | EngineState::Failed => false,
        };
        self.database.is_some() && engine_works
    }
}

/// A look at the health of a process. Await it for the whole [`Health`].
#[must_use = "nothing is looked at without `.await`, or `.is_live()`"]
pub struct CheckHealth<'a>(&'a Scoop);

impl CheckHealth<'_> {
    /// Whether the process can recover without a restart, without a look at the database: for the probe of liveness, which an outage
    /// of the database must not delay.
    pub fn is_live(&self) -> bool {
        self.0.engine_state() != EngineState::Failed
    }
}

impl<'a> IntoFuture for CheckHealth<'a> {
    type Output = Health;
    type IntoFuture = BoxFuture<'a, Health>;

    fn into_future(self) -> Self::IntoFuture {
        let Self(scoop) = self;
        async move {
            let began = Instant::now();
            let engine = scoop.engine();
            let check = async {
                match engine {
                    Some(engine) => engine.is_registered().await,
                    None => scoop.store().now().await.map(|_| false),
                }
            };
            let answer = tokio::time::timeout(DATABASE_MAX, check).await.ok().and_then(Result::ok);
            let database = answer.map(|_| began.elapsed());
            let clock_lag = match database {
                Some(_) => tokio::time::timeout(DATABASE_MAX, scoop.store().clock_lag()).await,
                None => Ok(Ok(Duration::ZERO)),
            };
            Health {
                clock_lag: clock_lag.unwrap_or(Ok(Duration::ZERO)).unwrap_or_default(),
                database,
                engine: scoop.engine_state(),
                has_session: engine.is_some_and(|engine| engine.has_session()),
                is_registered: answer.unwrap_or_default(),
                lag: engine.map_or(Duration::ZERO, |engine| engine.lag()),
            }
        }
        .boxed()
    }
}

impl Scoop {
    /// The health of this process, for probes of an orchestrator. Awaited, it takes two short statements, and no more than 4 s.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) {
    /// println!("live: {}", scoop.health().is_live());             // without a look at the database
    /// let health = scoop.health().await;
    /// println!("ready: {}, lag: {:?}", health.is_ready(), health.lag);
    /// # }
    /// ```
    pub fn health(&self) -> CheckHealth<'_> {
        CheckHealth(self)
    }

    fn engine_state(&self) -> EngineState {
        self.engine().map_or(EngineState::Absent, |engine| engine.state())
    }
}
