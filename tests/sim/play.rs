//! Plays a scenario on the real engine and a database in memory, in virtual time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use scoop::operate::OperateExt as _;
use scoop::retention::Retention;
use scoop::{InMemory, LoggedEvent, RowState, Scoop, WorkingRun};
use scoop_audit::{Log, Violation, audit_rows};
use scoop_runtime::simulation::{self, Process, Subscription, Tables};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use crate::act::launch_from_outside;
use crate::dice::Dice;
use crate::judge::small_log;
use crate::link::{Line, Wire};
use crate::sagas::{Delta, Epsilon, Gamma, Zeta};
use crate::scenario::{self, ALL, Ask, Emit, Life, Repair, Scenario, Versions};
use crate::slow;
use crate::versions::{provide_alpha, provide_beta};
use crate::world::{Alive, Notes, World};

/// Everything has to be at rest within this (virtual) time after the healing.
const RETRY_FOR: Duration = Duration::from_secs(30 * 60);

/// Limit of the runs that are resolved one after the other; no scenario has more.
const REPAIRS_MAX: usize = 100;

/// The state that a simulation leaves behind.
pub(crate) struct Played {
    pub(crate) log: Vec<LoggedEvent>,
    pub(crate) tables: Tables,
    pub(crate) listed: Vec<Subscription>,
    pub(crate) notes: Notes,
    /// Whether all runs came to their end.
    pub(crate) at_rest: bool,
    /// The runs that are unfinished in the end.
    pub(crate) unfinished: Vec<String>,
    /// Violations that were there at moments in between.
    pub(crate) seen: Vec<Violation>,
    /// The runs that operators have repaired.
    pub(crate) repaired: Vec<Uuid>,
    pub(crate) hierarchies: u64,
}

/// Plays the scenario from the beginning to the end.
pub(crate) fn play(scenario: &Scenario) -> Played {
    let _watched = slow::watch(format!("seed {}", scenario.seed));
    simulation::seed(scenario.seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    // Outside of the runtime the real time would be read.
    let played = runtime.block_on(async { Stage::new(scenario).play().await });
    drop(runtime);
    simulation::seed(None);
    played
}

struct Stage<'a> {
    scenario: &'a Scenario,
    database: InMemory,
    world: Arc<World>,
    client: Option<Scoop>,
    began: Instant,
    seen: Vec<Violation>,
    /// The hierarchies that were launched, by their position in the scenario.
    launched: BTreeMap<u32, Uuid>,
}

/// An event from outside, at a time.
enum Deed<'a> {
    Launch(u32, &'a scenario::Launched),
    Ask(&'a Ask),
    Look,
}

impl<'a> Stage<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        Self {
            scenario,
            database: InMemory::starting_at(new_year),
            world: Arc::default(),
            client: None,
            began: Instant::now(),
            seen: vec![],
            launched: BTreeMap::new(),
        }
    }

    async fn play(mut self) -> Played {
        let client = Scoop::builder().in_memory_database(&self.database).client().await;
        self.client = client.ok();
        let mut processes = JoinSet::new();
        for (nth, process) in (0_u64..).zip(&self.scenario.processes) {
            let seed = Dice::new(self.scenario.seed ^ nth.wrapping_mul(0x51_7c_c1_b7_27_22_0a_95)).roll();
            let lives = process.lives.clone();
            processes.spawn(live(self.database.clone(), self.world.clone(), lives, seed));
        }
        let mut deeds = self.deeds();
        deeds.sort_by_key(|(at, _)| *at);
        for (at, deed) in deeds {
            sleep_until(self.began + Duration::from_millis(at.into())).await;
            self.carry_out(deed).await;
        }
        sleep_until(self.began + Duration::from_millis(self.scenario.heals_at.into())).await;
        self.world.heal();
        self.look(&[]);
        let mut helper = Helper::default();
        if self.scenario.changes() {
            self.help(&mut helper, &self.scenario.versions()).await;
        }
        let mut at_rest = self.comes_to_rest(&mut helper).await;
        self.look(&[]);
        let mut repaired = vec![];
        if !self.scenario.repairs.is_empty() {
            at_rest &= self.repair(&mut helper, &mut repaired).await;
        }
        if self.scenario.changes() {
            at_rest = at_rest && self.begin_afresh(&mut helper).await;
            self.find_stuck();
        }
        let listed = simulation::subscriptions(&self.database);
        let description = |run: WorkingRun| format!("{} {} is {}", run.handler, run.lineage, run.state);
        let unfinished = self.database.working_set().into_iter().map(description).collect();
        let (log, tables) = (self.database.event_log(), simulation::tables(&self.database));
        let notes = std::mem::take(&mut *self.world.notes());
        let hierarchies = self.hierarchies().len() as u64;
        Played { log, tables, listed, notes, at_rest, unfinished, seen: self.seen, repaired, hierarchies }
    }

    fn deeds(&self) -> Vec<(u32, Deed<'a>)> {
        let launches = (0_u32..).zip(&self.scenario.launches);
        let launches = launches.map(|(nth, launch)| (launch.at, Deed::Launch(nth, launch)));
        let requests = self.scenario.requests.iter().map(|asked| (asked.at, Deed::Ask(&asked.what)));
        let looks = self.scenario.looks.iter().map(|at| (*at, Deed::Look));
        launches.chain(requests).chain(looks).collect()
    }

    async fn carry_out(&mut self, deed: Deed<'_>) {
        let Some(client) = self.client.clone() else {
            return;
        };
        match deed {
            Deed::Launch(nth, launched) => match launch_from_outside(&client, &launched.emit).await {
                Ok(handle) => {
                    self.launched.insert(nth, handle.id().uuid());
                    let emit = launched.emit.clone();
                    self.world.notes().messages.insert(handle.message_id(), emit);
                }
                Err(error) => self.world.complain(None, format!("a launch failed: {error}")),
            },
            Deed::Ask(ask) => self.ask(&client, ask).await,
            Deed::Look => self.look(&[]),
        }
    }

    async fn ask(&self, client: &Scoop, ask: &Ask) {
        let of = |nth: &u32| self.launched.get(nth).copied();
        match ask {
            Ask::Advance(ms) => self.database.advance(Duration::from_millis((*ms).into())),
            Ask::Cancel(nth) => {
                if let Some(id) = of(nth) {
                    self.answered(client.cancel(id, "planned: cancelled").await);
                }
            }
            Ask::CancelRun(nth, run) => {
                let log = of(nth).map(|id| self.database.event_log_of(id)).unwrap_or_default();
                let seen = log.iter().filter(|event| event.kind == scoop::EventKind::Seen);
                if let Some(seen) = seen.clone().nth(*run as usize) {
                    self.answered(client.cancel(seen.lineage.id(), "planned: cancelled in part").await);
                }
            }
            Ask::Undo(nth) => {
                if let Some(id) = of(nth) {
                    self.answered(client.rollback(id, "planned: undone").await);
                }
            }
        }
    }

    fn answered<T>(&self, answer: Result<T, impl std::fmt::Display>) {
        if let Err(error) = answer {
            self.world.complain(None, format!("a request failed: {error}"));
        }
    }

    fn hierarchies(&self) -> Vec<Uuid> {
        let log = self.database.event_log();
        let mut roots: Vec<_> = log.iter().map(|event| event.lineage.root_id()).collect();
        roots.sort_unstable();
        roots.dedup();
        roots
    }

    /// Audits the rows as they are, after these repairs.
    fn look(&mut self, repaired: &[Uuid]) {
        let log = Log { repaired: repaired.to_vec(), ..small_log(&self.database) };
        self.seen.extend(audit_rows(&log));
    }

    /// Whether a run can go on without an operator: not one that is stuck or failed, nor one that waits for a stuck one.
    fn has_run_that_goes_on(&self) -> bool {
        let runs = self.database.working_set();
        let stuck = runs.iter().filter(|run| run.state == RowState::Stuck);
        let is_held = |root: Uuid| stuck.clone().any(|run| run.lineage.root_id() == root);
        let others = runs.iter().filter(|run| !matches!(run.state, RowState::Stuck | RowState::Failed));
        let mut able = others.filter(|run| {
            !matches!(run.state, RowState::Waiting | RowState::Ended) || !is_held(run.lineage.root_id())
        });
        able.next().is_some()
    }

    /// Starts processes with all sagas in these versions, one after the other.
    async fn help(&self, helper: &mut Helper, versions: &[Versions]) {
        let alive = Alive::new(self.world.clone());
        for versions in versions {
            let builder = builder(&alive, ALL, *versions).concurrency(8).in_memory_database(&self.database);
            helper.extend(builder.start().await.ok());
            self.world.notes().started.push((true, *versions));
        }
    }

    /// Reports runs that no program can continue, although there is one of each version.
    fn find_stuck(&self) {
        for run in self.database.working_set() {
            if run.state == RowState::Stuck {
                let reason = run.reason.unwrap_or_default();
                self.world.complain(None, format!("I7: {} {} is stuck: {reason}", run.handler, run.lineage));
            }
        }
    }

    /// Launches one message when all is at rest. It begins in the newest version.
    async fn begin_afresh(&self, helper: &mut Helper) -> bool {
        let Some(client) = &self.client else {
            return false;
        };
        let Ok(handle) = launch_from_outside(client, &Emit::default()).await else {
            return false;
        };
        {
            let mut notes = self.world.notes();
            notes.messages.insert(handle.message_id(), Emit::default());
            notes.fresh = Some(handle.id().uuid());
        }
        self.comes_to_rest(helper).await
    }

    /// Waits until every run has ended. Runs without a process get one.
    async fn comes_to_rest(&self, helper: &mut Helper) -> bool {
        let until = Instant::now() + RETRY_FOR;
        let mut pause = Duration::from_millis(50);
        while self.has_run_that_goes_on() {
            if helper.is_empty() {
                self.help(helper, &[[0; 2]]).await;
            }
            if Instant::now() > until {
                return false;
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(20));
        }
        true
    }
}

/// The processes that finish the remaining runs, if there are any.
type Helper = Vec<Scoop>;

impl Stage<'_> {
    /// Repairs failed rollbacks: as the scenario says, and then operators resolve all others.
    async fn repair(&mut self, helper: &mut Helper, repaired: &mut Vec<Uuid>) -> bool {
        let Some(client) = self.client.clone() else {
            return false;
        };
        for repair in &self.scenario.repairs {
            let (Repair::Retry(nth) | Repair::Skip(nth) | Repair::Resolve(nth)) = *repair;
            let Some(run) = self.failed().get(nth as usize).copied() else {
                continue;
            };
            let request = match repair {
                Repair::Retry(_) => client.operate().failures().retry(run),
                Repair::Skip(_) => client.operate().failures().skip(run, "planned: skipped"),
                Repair::Resolve(_) => client.operate().failures().resolve(run, "planned: resolved"),
            };
            self.answered(request.await);
            repaired.push(run);
            if !self.comes_to_rest(helper).await {
                return false;
            }
            self.look(repaired);
        }
        for _ in 0..REPAIRS_MAX {
            let Some(run) = self.failed().first().copied() else {
                return self.database.working_set().is_empty();
            };
            self.answered(client.operate().failures().resolve(run, "planned: resolved in the end").await);
            repaired.push(run);
            if !self.comes_to_rest(helper).await {
                return false;
            }
        }
        false
    }

    /// The runs with a failed rollback, the deepest first: those above them failed because of them.
    fn failed(&self) -> Vec<Uuid> {
        let runs = self.database.working_set().into_iter();
        let mut failed: Vec<_> = runs.filter(|run| run.state == RowState::Failed).collect();
        failed.sort_by_key(|run| (Reverse(run.lineage.ids().len()), run.lineage.id()));
        failed.into_iter().map(|run| run.lineage.id()).collect()
    }
}

/// The lives of a process, one after the other. A dead process keeps its values until the end.
async fn live(database: InMemory, world: Arc<World>, lives: Vec<Life>, seed: u64) {
    let (mut remains, mut ties) = (vec![], vec![]);
    for (nth, life) in (1_u64..).zip(lives) {
        sleep(Duration::from_millis(life.after.into())).await;
        if world.is_healed() {
            break;
        }
        let wire = Wire::new(Alive::new(world.clone()), life.clone(), seed.wrapping_add(nth));
        let process = Process::new(&database, Arc::new(Line(wire.clone())));
        // Short windows of the history beside long ones.
        let process = process.reading([2, 5, 100][usize::try_from(seed.wrapping_add(nth) % 3).unwrap_or(0)]);
        ties.push(wire.belongs_to(process.clone()));
        let builder =
            builder(&wire.alive, life.handlers, life.versions).concurrency(life.concurrency.max(1).into());
        let starting = builder.poll_interval(Duration::from_secs(1)).simulated_process(&process).start();
        let started = tokio::select! {
            biased;
            () = wire.died.notified() => None,
            started = starting => started.ok(),
        };
        let Some(scoop) = started else {
            process.disconnect();
            continue;
        };
        world.notes().started.push((false, life.versions));
        let stops = async {
            if life.stops == 0 {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_millis(life.stops.into())).await;
        };
        tokio::select! {
            biased;
            () = wire.died.notified() => {}
            () = stops => {
                // A process that dies during its shutdown never completes it.
                let stopped = tokio::time::timeout(Duration::from_secs(5), scoop.shutdown()).await;
                if stopped.is_err() {
                    wire.die(0);
                }
            }
        }
        remains.push(scoop);
    }
    std::future::pending::<()>().await;
    drop((remains, ties));
}

/// A program with these sagas.
fn builder(alive: &Alive, handlers: u8, versions: Versions) -> scoop::Builder {
    let mut builder = Scoop::builder().retention(Retention::forever());
    let has = |nth: u8| handlers & (1 << nth) != 0;
    if has(0) {
        builder = provide_alpha(builder, alive, versions[0]);
    }
    if has(1) {
        builder = provide_beta(builder, alive, versions[1]);
    }
    if has(2) {
        builder = builder.provide(Gamma(alive.clone())).only::<Gamma>();
    }
    if has(3) {
        builder = builder.provide(Delta(alive.clone())).only::<Delta>();
    }
    if has(4) {
        builder = builder.provide(Zeta(alive.clone())).only::<Zeta>();
    }
    // At least one handler, because a program that names none has all of them.
    if has(5) || handlers == 0 {
        builder = builder.provide(Epsilon(alive.clone())).only::<Epsilon>();
    }
    builder
}
