//! Two builds at the same time: this program and an older one, each with a database of its own on one server.
//!
//! Both run as workers, and see the same machine in the same seconds, so that a busy one slows down both. Only processor
//! time counts: that of the program, and that of its sessions. The sagas are launched by plain statements on tables, since
//! a client of this program may not know the tables of the older one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::args::Settings;
use crate::os_process::processor_seconds;
use crate::outcome::Outcome;
use crate::report::spread;
use crate::sagas::{TREE_ROLLBACK_STEPS, TREE_STEPS};
use crate::server::{Database, OWN_NAME, Server};
use crate::stats::{median, range};
use crate::worker::{Kind, Worker};

/// The measures.
const LOADS: [Load; 4] = [
    Load { key: "B1", topic: "bench.insert", payload: r#"{"n": 1}"#, steps: 3.0, warm_up: 1500 },
    Load { key: "B2", topic: "bench.idle", payload: r#"{"n": 1}"#, steps: 3.0, warm_up: 3000 },
    Load {
        key: "B3",
        topic: "bench.tree",
        payload: r#"{"n": 1, "fails": false}"#,
        steps: TREE_STEPS,
        warm_up: 200,
    },
    Load {
        key: "B5",
        topic: "bench.tree",
        payload: r#"{"n": 1, "fails": true}"#,
        steps: TREE_ROLLBACK_STEPS,
        warm_up: 200,
    },
];

/// The sagas of the measure with that id.
pub(crate) fn load(key: &str) -> Option<Load> {
    LOADS.into_iter().find(|load| load.key == key)
}

/// The sagas of one measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    key: &'static str,
    topic: &'static str,
    payload: &'static str,
    /// The user's transactions of each saga.
    steps: f64,
    /// The sagas that warm up a worker: each of its sessions has planned its statements by then.
    warm_up: i64,
}

/// Limit of the wait for a worker to end its runs.
const ENDED_WITHIN: Duration = Duration::from_secs(600);

/// One of the two, at work.
pub(crate) struct Contestant {
    pub(crate) database: Database,
    worker: Worker,
}

/// Processor time: in microseconds for each step, or in seconds so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) server: f64,
    program: f64,
}

impl Cost {
    fn server(&self) -> f64 {
        self.server
    }

    fn program(&self) -> f64 {
        self.program
    }

    fn both(&self) -> f64 {
        self.server + self.program
    }
}

/// Measures this program beside the other one, and prints a table.
pub(crate) async fn run(other: &Path, settings: &Settings) -> Outcome<()> {
    let server = Server::start().await?;
    println!("| id | µs a step | this | other | this ÷ other |\n| --- | --- | --- | --- | --- |");
    for load in LOADS {
        if settings.only.as_ref().is_none_or(|only| only.iter().any(|name| name == load.key)) {
            measure(&server, load, other, settings).await?;
        }
    }
    server.stop().await
}

async fn measure(server: &Server, load: Load, other: &Path, settings: &Settings) -> Outcome<()> {
    let own = std::env::current_exe()?;
    let programs = [own.as_path(), other];
    let mut costs: [Vec<Cost>; 2] = Default::default();
    for round in 0..settings.rounds {
        // Each of the two is the first in every other round.
        let (one, two) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let first = Contestant::start(server, programs[one], settings).await?;
        let second = Contestant::start(server, programs[two], settings).await?;
        let begun = Instant::now();
        let both = async |sagas| {
            tokio::try_join!(first.work_off(server, load, sagas), second.work_off(server, load, sagas))
        };
        both(load.warm_up).await?;
        let millis = i64::try_from(begun.elapsed().as_millis())?.max(1);
        let sagas = (load.warm_up * i64::from(settings.seconds) * 1000 / millis).max(10);
        let cost = both(sagas).await?;
        costs[one].push(cost.0);
        costs[two].push(cost.1);
        first.stop(server).await?;
        second.stop(server).await?;
        eprintln!(
            "{} round {}: {sagas} sagas each, {:.3}",
            load.key,
            round + 1,
            costs[0][round].both() / costs[1][round].both()
        );
    }
    for (what, part) in
        [("server", Cost::server as fn(&Cost) -> f64), ("program", Cost::program), ("both", Cost::both)]
    {
        let [this, other] = costs.each_ref().map(|costs| costs.iter().map(part).collect::<Vec<_>>());
        let ratios: Vec<f64> = this.iter().zip(&other).map(|(this, other)| this / other).collect();
        println!("| {} | {what} | {} | {} | {} |", load.key, spread(&this), spread(&other), ratio(&ratios));
    }
    Ok(())
}

/// The median and the range of ratios, to a thousandth.
fn ratio(ratios: &[f64]) -> String {
    match (median(ratios), range(ratios)) {
        (Some(middle), Some((min, max))) => format!("{middle:.3} [{min:.3}–{max:.3}]"),
        _ => "-".into(),
    }
}

impl Contestant {
    /// Starts a worker of that program in a fresh database, which gets its tables from it.
    pub(crate) async fn start(server: &Server, program: &Path, settings: &Settings) -> Outcome<Self> {
        let database = server.empty_database().await?;
        database.execute(include_str!("../sql/tables.sql")).await?;
        let mut worker = Worker::spawn_of(program, Kind::Plain, database.url(), settings).await?;
        worker.go().await?;
        Ok(Self { database, worker })
    }

    /// Launches so many sagas, and returns the cost of their steps once all have ended.
    pub(crate) async fn work_off(&self, server: &Server, load: Load, sagas: i64) -> Outcome<Cost> {
        let before = self.used(server).await?;
        let launch = include_str!("../sql/versus_launch.sql");
        let launch = sqlx::query(launch).bind(load.topic).bind(load.payload).bind(sagas);
        let launched = launch.execute(&self.database.pool).await?.rows_affected();
        if launched != sagas.unsigned_abs() {
            return Err(format!("{launched} runs for {sagas} messages of {}", load.topic).into());
        }
        let since = Instant::now();
        while self.database.number(UNFINISHED).await? > 0.0 {
            if since.elapsed() > ENDED_WITHIN {
                return Err("some runs never ended".into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let after = self.used(server).await?;
        // The number of sagas is far below the precision of a float.
        let micros = 1_000_000.0 / (load.steps * sagas as f64);
        Ok(Cost {
            server: (after.server - before.server) * micros,
            program: (after.program - before.program) * micros,
        })
    }

    /// The seconds that its sessions and the program have used so far.
    async fn used(&self, server: &Server) -> Outcome<Cost> {
        const SESSIONS: &str = "SELECT pid FROM pg_stat_activity
            WHERE datname = $1 AND backend_type = 'client backend' AND application_name <> $2";
        let sessions = sqlx::query_scalar(SESSIONS).bind(self.database.name()).bind(OWN_NAME);
        let sessions: Vec<i32> = sessions.fetch_all(server.admin()).await?;
        let sessions = sessions.into_iter().filter_map(|pid| u32::try_from(pid).ok());
        Ok(Cost {
            server: sessions.map(processor_seconds).sum(),
            program: processor_seconds(self.worker.process_id()),
        })
    }

    pub(crate) async fn stop(self, server: &Server) -> Outcome<()> {
        self.worker.stop().await?;
        server.remove(self.database).await
    }
}

const UNFINISHED: &str =
    "SELECT count(*)::float8 FROM (SELECT FROM scoop.run WHERE topic LIKE 'bench.%' LIMIT 1) one";
