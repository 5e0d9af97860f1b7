//! Several processes of a small simulation. Until the healing their operations take time, fail, or lose their answers;
//! they die and are replaced, or are wrongly presumed dead.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use scoop::retention::Retention;
use scoop::{Builder, InMemory, RuntimeError, Scoop};
use scoop_audit::audit_rows;
use scoop_runtime::simulation::{self, FaultLink, Process};

use crate::dice::Dice;
use crate::judge::{described, small_log};
use crate::many::threads;
use crate::slow;

/// The processes of one simulation on one database.
pub(crate) struct Crew {
    pub(crate) database: InMemory,
    pub(crate) dice: Dice,
    healed: Arc<AtomicBool>,
}

/// What becomes of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    /// It dies after a while.
    Dies,
    /// It loses its sessions from time to time, so that the others take it for dead.
    IsPresumedDead,
}

impl Crew {
    fn new(seed: u64) -> Self {
        let new_year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600);
        Self { database: InMemory::starting_at(new_year), dice: Dice::new(seed), healed: Arc::default() }
    }

    /// Starts a process with this program.
    pub(crate) fn start(&mut self, fate: Fate, program: impl Fn(Builder) -> Builder + Send + 'static) {
        let line = self.line();
        let process = Process::new(&self.database, Arc::new(Wire(line.clone())));
        // Short windows of the history beside long ones.
        let process = process.reading([2, 5, 100][self.dice.below(3) as usize]);
        let lives = Duration::from_millis(self.dice.between(30, 400).into());
        tokio::spawn(async move {
            let started = process.clone();
            let running = tokio::spawn(supervised(move || {
                let builder =
                    program(Scoop::builder().simulated_process(&started).retention(Retention::forever()));
                builder.poll_interval(Duration::from_secs(1))
            }));
            match fate {
                Fate::Lives => {}
                Fate::Dies => {
                    tokio::time::sleep(lives).await;
                    line.die();
                    process.disconnect();
                    running.abort();
                }
                Fate::IsPresumedDead => {
                    while !line.healed.load(Ordering::Relaxed) {
                        tokio::time::sleep(lives).await;
                        process.disconnect();
                    }
                }
            }
            // What it has begun never ends.
            let _running = running;
            pending::<()>().await;
        });
    }

    /// A client whose operations fail like those of the processes.
    pub(crate) async fn client(&mut self) -> Result<Scoop, RuntimeError> {
        let line = self.line();
        let process = Process::new(&self.database, Arc::new(Wire(line)));
        Scoop::builder().simulated_process(&process).client().await
    }

    /// Subscribes the sagas of the program, without faults.
    pub(crate) async fn register(
        &self,
        program: impl FnOnce(Builder) -> Builder,
    ) -> Result<(), RuntimeError> {
        let builder = Scoop::builder().in_memory_database(&self.database).retention(Retention::forever());
        program(builder).start().await?.shutdown().await
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    /// Waits for a time up to this limit.
    pub(crate) async fn pause(&mut self, millis_max: u32) {
        tokio::time::sleep(Duration::from_millis(self.dice.below(millis_max).into())).await;
    }

    /// What becomes of another process.
    pub(crate) fn fate(&mut self) -> Fate {
        if self.dice.percent(75) { Fate::Dies } else { Fate::IsPresumedDead }
    }

    /// What the reference model finds in the rows at this moment.
    pub(crate) fn violations(&self) -> Vec<String> {
        described(&audit_rows(&small_log(&self.database)))
    }

    fn line(&mut self) -> Arc<Line> {
        Arc::new(Line::new(self.healed.clone(), self.dice.roll()))
    }
}

/// Starts a program, again and again, as a supervisor does, until the start succeeds.
pub(crate) async fn supervised(program: impl Fn() -> Builder + Send) -> Scoop {
    loop {
        if let Ok(running) = program().start().await {
            return running;
        }
    }
}

/// The link of one process. It fails at random until the healing.
pub(crate) struct Line {
    healed: Arc<AtomicBool>,
    dead: AtomicBool,
    dice: Mutex<Dice>,
}

impl Line {
    pub(crate) fn new(healed: Arc<AtomicBool>, seed: u64) -> Self {
        Self { healed, dead: AtomicBool::new(false), dice: Mutex::new(Dice::new(seed)) }
    }

    /// From now on nothing that was begun ends.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn roll<T>(&self, roll: impl FnOnce(&mut Dice) -> T) -> T {
        roll(&mut self.dice.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn suffer(self: Arc<Self>) -> BoxFuture<'static, io::Result<()>> {
        async move {
            if !self.healed.load(Ordering::Relaxed) {
                let (micros, fails) = self.roll(|dice| (dice.below(3_000), dice.percent(4)));
                tokio::time::sleep(Duration::from_micros(micros.into())).await;
                if fails {
                    return Err(io::ErrorKind::ConnectionReset.into());
                }
            }
            if self.dead.load(Ordering::Relaxed) {
                pending::<()>().await;
            }
            Ok(())
        }
        .boxed()
    }
}

/// The link as the process has it.
pub(crate) struct Wire(pub(crate) Arc<Line>);

impl FaultLink for Wire {
    fn before(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.0.clone().suffer()
    }

    fn after(&self, _: &'static str) -> BoxFuture<'static, io::Result<()>> {
        self.0.clone().suffer()
    }

    fn heard(&self) -> BoxFuture<'static, u32> {
        let lost = !self.0.healed.load(Ordering::Relaxed) && self.0.roll(|dice| dice.percent(20));
        std::future::ready(u32::from(!lost)).boxed()
    }
}

/// A simulation of one feature.
pub(crate) struct Small {
    pub(crate) name: &'static str,
    /// Plays one seed. Returns what is wrong.
    pub(crate) play: fn(Crew) -> BoxFuture<'static, scoop::Result<Vec<String>>>,
}

impl Small {
    /// What is wrong with this seed.
    pub(crate) fn wrong(&self, seed: u64) -> Vec<String> {
        let _watched = slow::watch(format!("{}: seed {seed}", self.name));
        simulation::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime starts");
        let wrong = runtime.block_on(async { (self.play)(Crew::new(seed)).await });
        drop(runtime);
        simulation::seed(None);
        wrong.unwrap_or_else(|error| vec![error.to_string()])
    }

    /// Plays these seeds on all cores. Returns whether nothing is wrong.
    pub(crate) fn play(&self, seeds: std::ops::Range<u64>) -> bool {
        let (next, failed) = (std::sync::atomic::AtomicU64::new(seeds.start), Mutex::new(0_u32));
        std::thread::scope(|scope| {
            for _ in 0..threads() {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let wrong = self.wrong(seed);
                        if !wrong.is_empty() {
                            *failed.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                            println!("{}: seed {seed}:\n  {}", self.name, wrong.join("\n  "));
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!("{}: {} seeds, {failed} wrong", self.name, seeds.end - seeds.start);
        failed == 0
    }
}
