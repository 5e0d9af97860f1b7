//! The faults of workers, servers and connections, injected at moments that depend on the progress of the work.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use scoop::Result;
use scoop::Saga;
use scoop::embedded::Shutdown;
use sqlx::{ConnectOptions, PgConnection};

use crate::caller;
use crate::cluster::Cluster;
use crate::crew::{Orders, Worker};
use crate::dice::Dice;
use crate::observer::{Observer, SLOW, UnderWay};
use crate::proxy::{Pace, Proxy};
use crate::sagas::Carrier;

/// Limit of the events between two faults.
const CALM_MAX: u32 = 160;

/// Longest duration of a fault that ends once enough has happened in spite of it.
const LASTS: Duration = Duration::from_millis(700);

/// How long answers are held back before their connection is cut.
const MUTE: Duration = Duration::from_millis(120);

/// The delay of each message on a slow connection.
const SLOWER: Duration = Duration::from_millis(15);

/// How far clocks are moved, in seconds: from 5 seconds to a year.
const CLOCKS: [i64; 8] = [-31_536_000, -86_400, -3_600, -5, 5, 3_600, 86_400, 31_536_000];

/// A message with a run, and an event of another program saying that this run has begun.
const FORGE: &str = r#"
    WITH forged AS (
        INSERT INTO scoop.message (id, topic, payload)
        VALUES (gen_random_uuid(), 'chaos.errand', '{"number": 0, "fails": false, "forged": true}')
        RETURNING id, topic, gen_random_uuid() AS root, gen_random_uuid() AS run
    ), events AS (
        INSERT INTO scoop.message_event (message_id, type, coroutine_name, cooperation_lineage)
        SELECT id, type::scoop.message_event_type, handler, lineage
        FROM forged CROSS JOIN LATERAL (VALUES
            ('EMITTED', NULL, ARRAY[root]), ('SEEN', $1, ARRAY[root, gen_random_uuid()])
        ) events (type, handler, lineage)
    )
    INSERT INTO scoop.run (root, id, lineage, message_id, topic, handler, last_event_at)
    SELECT root, run, ARRAY[root, run], id, topic, $1, now() FROM forged"#;

const DELETE_FORGED: &str = "
    BEGIN;
    CREATE TEMPORARY TABLE forged ON COMMIT DROP AS SELECT id FROM scoop.message WHERE payload ? 'forged';
    DELETE FROM scoop.run WHERE message_id IN (SELECT id FROM forged);
    DELETE FROM scoop.message_event WHERE message_id IN (SELECT id FROM forged);
    DELETE FROM scoop.message WHERE id IN (SELECT id FROM forged);
    COMMIT";

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Dismiss,
    Freeze,
    Zombie,
    Terminate,
    RestartFast,
    RestartImmediate,
    FailOver,
    Cut,
    Hold,
    Slow,
    LoseAnswers,
    FillPool,
    Crowd,
    MoveClock,
    KillAll,
    Forge,
}

impl Fault {
    const ALL: [Fault; 17] = [
        Fault::Kill,
        Fault::Dismiss,
        Fault::Freeze,
        Fault::Zombie,
        Fault::Terminate,
        Fault::RestartFast,
        Fault::RestartImmediate,
        Fault::FailOver,
        Fault::Cut,
        Fault::Hold,
        Fault::Slow,
        Fault::LoseAnswers,
        Fault::FillPool,
        Fault::Crowd,
        Fault::MoveClock,
        Fault::KillAll,
        Fault::Forge,
    ];

    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Kill => "workers killed",
            Fault::Dismiss => "workers replaced in good order",
            Fault::Freeze => "workers stopped and continued",
            Fault::Zombie => "workers that came back after they were given up",
            Fault::Terminate => "times sessions were terminated",
            Fault::RestartFast => "fast restarts",
            Fault::RestartImmediate => "immediate restarts",
            Fault::FailOver => "fail-overs to the standby",
            Fault::Cut => "times connections were cut",
            Fault::Hold => "times connections were held up",
            Fault::Slow => "times connections were slow",
            Fault::LoseAnswers => "times answers were lost",
            Fault::FillPool => "pools filled",
            Fault::Crowd => "times the server was full",
            Fault::MoveClock => "clocks moved",
            Fault::KillAll => "times all workers were killed",
            Fault::Forge => "forged events, each of which stopped its run and no other",
        }
    }

    /// Whether it stops everything for so long that the long form would do little else.
    pub(crate) fn is_rare(self) -> bool {
        matches!(self, Fault::FailOver | Fault::KillAll | Fault::Crowd)
    }

    fn needs_own_server(self) -> bool {
        use Fault::{Crowd, FailOver, RestartFast, RestartImmediate};
        matches!(self, RestartFast | RestartImmediate | FailOver | Crowd)
    }
}

/// The workers, the servers, and the random numbers.
pub(crate) struct Nemesis {
    cluster: Cluster,
    proxy: Proxy,
    observer: Observer,
    orders: Orders,
    faketime: Option<PathBuf>,
    dice: Dice,
    crew: Vec<Worker>,
    hired: usize,
    begin: Instant,
    /// The faults with their times.
    pub(crate) history: Vec<String>,
    pub(crate) tally: BTreeMap<Fault, usize>,
    /// What is wrong in the end.
    pub(crate) violations: Vec<String>,
    /// The longest time after a fault until the runs under way had ended or were taken over.
    pub(crate) longest_recovery: Duration,
}

impl Nemesis {
    pub(crate) fn new(cluster: Cluster, proxy: Proxy, orders: Orders) -> Result<Self> {
        let observer = Observer::new(cluster.direct()?);
        let (faketime, dice) = (crate::clock::library(), Dice::new(orders.seed, 1));
        Ok(Self {
            cluster,
            proxy,
            observer,
            orders,
            faketime,
            dice,
            crew: vec![],
            hired: 0,
            begin: Instant::now(),
            history: vec![],
            tally: BTreeMap::new(),
            violations: vec![],
            longest_recovery: Duration::ZERO,
        })
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The faults that are possible here, and the reasons against the others.
    pub(crate) fn choice(&self) -> (Vec<Fault>, Vec<String>) {
        let (mut can, mut cannot) = (vec![], vec![]);
        for fault in Fault::ALL {
            if fault.needs_own_server() && !self.cluster.is_own() {
                cannot.push(format!("no {}: the server of DATABASE_URL is not ours", fault.name()));
            } else if fault == Fault::MoveClock && self.faketime.is_none() {
                cannot.push(format!("no {}: `faketime` is not installed", fault.name()));
            } else {
                can.push(fault);
            }
        }
        (can, cannot)
    }

    /// The faults in random order.
    pub(crate) fn shuffled(&mut self, mut faults: Vec<Fault>) -> Vec<Fault> {
        self.dice.shuffle(&mut faults);
        faults
    }

    /// True in this percentage of cases.
    pub(crate) fn draw(&mut self, percent: usize) -> bool {
        self.dice.percent(percent)
    }

    /// Starts so many more workers.
    pub(crate) fn hire(&mut self, workers: usize) -> Result<()> {
        for _ in 0..workers {
            let worker = Worker::hire(&self.orders, self.hired, self.faketime.as_deref())?;
            self.hired += 1;
            self.crew.push(worker);
        }
        Ok(())
    }

    /// Waits until some more has happened, then commits the fault. As a rule it then waits for the recovery.
    pub(crate) async fn strike(&mut self, fault: Fault) -> Result<()> {
        let more = 1 + self.dice.small(CALM_MAX);
        self.observer.until_events(more, None).await?;
        let under_way = self.observer.under_way().await?;
        self.history.push(format!("{:7.2} s  {fault:?}", self.begin.elapsed().as_secs_f64()));
        self.carry_out(fault).await?;
        *self.tally.entry(fault).or_default() += 1;
        // Otherwise the next fault comes before the recovery.
        if !self.dice.percent(30) {
            self.recover(under_way).await?;
        }
        Ok(())
    }

    /// Waits until every run that was under way, or is now, has ended or was taken over.
    pub(crate) async fn recover(&mut self, mut under_way: UnderWay) -> Result<()> {
        let begin = Instant::now();
        under_way.extend(self.observer.under_way().await?);
        self.observer.until_over(&under_way).await?;
        let took = begin.elapsed();
        self.longest_recovery = self.longest_recovery.max(took);
        if took > SLOW {
            self.history
                .push(format!("{:7.2} s    recovered after {took:.1?}", self.begin.elapsed().as_secs_f64()));
        }
        Ok(())
    }

    async fn carry_out(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Kill => {
                let victim = self.draw_worker();
                self.crew.swap_remove(victim).kill().await?;
                self.hire(1)
            }
            Fault::Dismiss => {
                let victim = self.draw_worker();
                self.crew.swap_remove(victim).dismiss().await?;
                self.hire(1)
            }
            Fault::Freeze => self.freeze(false).await,
            Fault::Zombie => self.freeze(true).await,
            Fault::Terminate => {
                let share = [0.3, 1.0][self.dice.below(2)];
                self.terminate("chaos-worker-%", share).await?;
                self.terminate(caller::NAME, 1.0).await
            }
            Fault::RestartFast => self.cluster.restart(Shutdown::Fast).await,
            Fault::RestartImmediate => self.cluster.restart(Shutdown::Immediate).await,
            Fault::FailOver => self.fail_over().await,
            Fault::MoveClock => {
                let (worker, clock) = (self.draw_worker(), CLOCKS[self.dice.below(CLOCKS.len())]);
                self.crew[worker].set_clock(clock)
            }
            Fault::FillPool => {
                let worker = self.draw_worker();
                self.crew[worker].signal("USR1").await
            }
            Fault::Crowd => self.crowd().await,
            Fault::KillAll => {
                let workers = self.crew.len();
                self.kill_all().await?;
                self.hire(workers)
            }
            Fault::Forge => self.forge().await,
            Fault::Cut | Fault::Hold | Fault::Slow | Fault::LoseAnswers => self.disturb(fault).await,
        }
    }

    fn draw_worker(&mut self) -> usize {
        self.dice.below(self.crew.len())
    }

    /// Stops a worker for a while. If `given_up`, its sessions are terminated meanwhile, so that its claims are
    /// void.
    async fn freeze(&mut self, given_up: bool) -> Result<()> {
        let worker = self.draw_worker();
        self.crew[worker].signal("STOP").await?;
        if given_up {
            let name = self.crew[worker].name.clone();
            self.terminate(&name, 1.0).await?;
        }
        self.last().await?;
        self.crew[worker].signal("CONT").await
    }

    /// Lets a fault last until some more has happened in spite of it.
    async fn last(&mut self) -> Result<()> {
        let more = 30 + self.dice.small(60);
        self.observer.until_events(more, Some(LASTS)).await
    }

    async fn terminate(&self, who: &str, share: f64) -> Result<()> {
        let terminate = sqlx::query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name LIKE $1 AND datname = current_database() AND random() < $2",
        );
        terminate.bind(who).bind(share).execute(self.observer.pool()).await?;
        Ok(())
    }

    /// Kills the primary. Its standby takes its place, and gets a standby of its own. In half of the cases all
    /// programs are led there at once, while it is read-only.
    async fn fail_over(&mut self) -> Result<()> {
        let too_early = self.dice.percent(50);
        self.cluster.lose_primary().await?;
        if too_early {
            self.proxy.lead_to(self.cluster.target()?);
            tokio::time::sleep(LASTS).await;
        }
        self.cluster.promote().await?;
        if !too_early {
            self.proxy.lead_to(self.cluster.target()?);
        }
        self.observer = Observer::new(self.cluster.direct()?);
        self.cluster.reinforce().await
    }

    async fn disturb(&mut self, fault: Fault) -> Result<()> {
        let percent = [30, 60, 100][self.dice.below(3)];
        match fault {
            Fault::Hold => self.proxy.set_pace(&mut self.dice, percent, Pace::Held),
            Fault::Slow => self.proxy.set_pace(&mut self.dice, percent, Pace::Slow(SLOWER)),
            Fault::LoseAnswers => self.proxy.set_pace(&mut self.dice, percent, Pace::Mute),
            _ => self.proxy.cut(&mut self.dice, percent),
        };
        match fault {
            Fault::Hold | Fault::Slow => self.last().await?,
            Fault::LoseAnswers => {
                tokio::time::sleep(MUTE).await;
                self.proxy.cut_the_mute();
            }
            _ => {}
        }
        self.proxy.free();
        Ok(())
    }

    /// Takes all sessions left on the server, when workers have just lost some of theirs.
    async fn crowd(&mut self) -> Result<()> {
        self.terminate("chaos-worker-%", 0.5).await?;
        let options = self.cluster.direct()?;
        let mut crowd: Vec<PgConnection> = vec![];
        while let Ok(session) = options.connect().await {
            crowd.push(session);
        }
        self.last().await
    }

    /// Writes the beginning of a run before its claim does. That run becomes stuck, and then an operator
    /// deletes it.
    async fn forge(&self) -> Result<()> {
        let forged = sqlx::query(FORGE).bind(Carrier::DEFINITION.saga);
        forged.execute(self.observer.pool()).await?;
        let stuck = "SELECT count(*) FROM scoop.run JOIN scoop.message ON message.id = run.message_id
                     WHERE payload ? 'forged' AND state = 'stuck'";
        self.observer.until(stuck, 1).await?;
        sqlx::raw_sql(DELETE_FORGED).execute(self.observer.pool()).await?;
        Ok(())
    }

    /// Kills all workers, and waits until the server has none of their sessions left.
    async fn kill_all(&mut self) -> Result<()> {
        for worker in self.crew.drain(..) {
            worker.kill().await?;
        }
        let left = "SELECT count(*) FROM pg_stat_activity
                    WHERE application_name LIKE 'chaos-worker-%' AND datname = current_database()";
        self.observer.until(left, 0).await
    }

    /// The number of workers that are gone without a request.
    pub(crate) async fn deserters(&mut self) -> usize {
        let mut deserters = 0;
        for worker in &mut self.crew {
            deserters += usize::from(!worker.lives().await);
        }
        deserters
    }

    /// Ends the test after all work is done: kills the workers, and checks that no run is left.
    pub(crate) async fn retire(&mut self) -> Result<()> {
        // Without this ticks would go on for ever.
        sqlx::query("UPDATE scoop.schedule SET next_at = 'infinity'").execute(self.observer.pool()).await?;
        self.observer.until_done().await?;
        self.kill_all().await?;
        let left = "SELECT count(*) FROM scoop.run WHERE handler <> 'none' AND state <> 'failed'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(self.observer.pool()).await?;
        self.violations
            .extend((left > 0).then(|| format!("I9: {left} runs are left when everything is done")));
        Ok(())
    }

    /// Stops all workers and our own servers.
    pub(crate) async fn end(mut self) -> Result<()> {
        for worker in self.crew.drain(..) {
            worker.kill().await?;
        }
        self.observer.pool().close().await;
        drop(self.proxy);
        self.cluster.end().await
    }
}
