//! The measured sagas, and the meter on which they count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use scoop::prelude::*;
use tokio::sync::mpsc::UnboundedSender;

use crate::outcome::Outcome as Answer;

/// Counts and times reported by the sagas of one engine.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    ended: AtomicU64,
    last_child: Mutex<HashMap<i64, Instant>>,
    resumed: Mutex<Vec<Duration>>,
    lateness: Mutex<Vec<Duration>>,
    roots: Option<UnboundedSender<(i64, scoop::Lineage)>>,
}

impl Meter {
    /// A meter that also sends each hierarchy that reaches its last step, with the number in its message.
    pub(crate) fn reporting(roots: UnboundedSender<(i64, scoop::Lineage)>) -> Self {
        Self { inner: Arc::new(Inner { roots: Some(roots), ..Inner::default() }) }
    }

    /// The number of sagas that have come to their last step.
    pub(crate) fn ended(&self) -> u64 {
        self.inner.ended.load(Ordering::Relaxed)
    }

    /// Waits until so many have. Fails if none does for a minute.
    pub(crate) async fn wait_for(&self, count: u64) -> Answer<()> {
        let (mut seen, mut since) = (self.ended(), Instant::now());
        while self.ended() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if self.ended() > seen {
                (seen, since) = (self.ended(), Instant::now());
            } else if since.elapsed() > Duration::from_secs(60) {
                return Err(format!("nothing ended for a minute; {seen} of {count} have").into());
            }
        }
        Ok(())
    }

    /// The delays of parents after the last step of their last child; empties the list.
    pub(crate) fn take_resumed(&self) -> Vec<Duration> {
        std::mem::take(&mut lock(&self.inner.resumed))
    }

    /// The delays of woken sleepers and of runs that got their signal; empties the list.
    pub(crate) fn take_lateness(&self) -> Vec<Duration> {
        std::mem::take(&mut lock(&self.inner.lateness))
    }

    pub(crate) fn count(&self) {
        self.inner.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a saga that was due at this time, in nanoseconds since 1970, and notes its delay.
    fn late_since(&self, due: u64) {
        let due = SystemTime::UNIX_EPOCH + Duration::from_nanos(due);
        lock(&self.inner.lateness).push(due.elapsed().unwrap_or_default());
        self.count();
    }

    fn child_ended(&self, parent: i64) {
        lock(&self.inner.last_child).insert(parent, Instant::now());
    }

    fn parent_resumed(&self, parent: i64) {
        if let Some(at) = lock(&self.inner.last_child).remove(&parent) {
            lock(&self.inner.resumed).push(at.elapsed());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An engine's builder with all sagas of this module.
pub(crate) fn with_all(builder: scoop::Builder, meter: &Meter) -> scoop::Builder {
    let builder = builder.provide(Inserts(meter.clone())).provide(Idles(meter.clone()));
    let builder = builder.provide(Loaded(meter.clone())).provide(Sleeps(meter.clone()));
    let builder = builder.provide(Approvals(meter.clone())).only::<Approvals>();
    let builder =
        builder.provide(Tree(meter.clone())).provide(Fan(meter.clone())).provide(Child(meter.clone()));
    let builder = builder.only::<Inserts>().only::<Idles>().only::<Loaded>().only::<Sleeps>();
    let builder = builder.only::<Lone>().only::<Tree>().only::<Left>().only::<Middle>().only::<Right>();
    let builder = builder.only::<LeafLeft>().only::<LeafMiddle>().only::<LeafRight>();
    builder.only::<Fan>().only::<Child>().only::<Circles>().only::<Round>()
}

pub(crate) async fn insert(scope: &mut Scope<'_>, saga: i64, step: i32) -> Result<()> {
    let insert = sqlx::query("INSERT INTO public.entry (saga, step) VALUES ($1, $2)").bind(saga).bind(step);
    insert.execute(scope.tx().await?).await?;
    Ok(())
}

/// The message of [`Inserts`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.insert")]
pub(crate) struct Insert {
    pub(crate) n: i64,
}

/// Three steps with one INSERT each.
pub(crate) struct Inserts(Meter);

#[saga]
#[subscribes(Insert)]
impl Inserts {
    #[step]
    async fn first(&self, scope: &mut Scope<'_>, message: &Insert) -> Result<()> {
        insert(scope, message.n, 1).await
    }

    #[step]
    async fn second(&self, scope: &mut Scope<'_>, message: &Insert) -> Result<()> {
        insert(scope, message.n, 2).await
    }

    #[step]
    async fn third(&self, scope: &mut Scope<'_>, message: &Insert) -> Result<()> {
        insert(scope, message.n, 3).await?;
        self.0.count();
        Ok(())
    }
}

/// The message of [`Idles`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.idle")]
pub(crate) struct Idle {
    pub(crate) n: i64,
}

/// Three steps that do not touch the database.
pub(crate) struct Idles(Meter);

#[saga]
#[subscribes(Idle)]
impl Idles {
    #[step]
    async fn first(&self, _: &mut Scope<'_>, _: &Idle) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn second(&self, _: &mut Scope<'_>, _: &Idle) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn third(&self, scope: &mut Scope<'_>, message: &Idle) -> Result<()> {
        if let Some(roots) = &self.0.inner.roots {
            let _ = roots.send((message.n, scope.lineage().clone()));
        }
        self.0.count();
        Ok(())
    }
}

/// The message of [`Lone`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.alone")]
pub(crate) struct Alone {
    pub(crate) n: i64,
}

/// Like [`Inserts`], to be launched beside a crowd of those.
#[derive(Default)]
pub(crate) struct Lone;

#[saga]
#[subscribes(Alone)]
impl Lone {
    #[step]
    async fn first(&self, scope: &mut Scope<'_>, message: &Alone) -> Result<()> {
        insert(scope, message.n, 1).await
    }

    #[step]
    async fn second(&self, scope: &mut Scope<'_>, message: &Alone) -> Result<()> {
        insert(scope, message.n, 2).await
    }

    #[step]
    async fn third(&self, scope: &mut Scope<'_>, message: &Alone) -> Result<()> {
        insert(scope, message.n, 3).await
    }
}

/// The message of [`Loaded`], with a payload.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.load")]
pub(crate) struct Load {
    pub(crate) n: i64,
    pub(crate) ballast: String,
}

/// The context of [`Load`].
#[derive(ContextKey, Serialize, Deserialize)]
pub(crate) struct Ballast(pub(crate) String);

/// Like [`Inserts`], with a large payload and context.
pub(crate) struct Loaded(Meter);

#[saga]
#[subscribes(Load)]
impl Loaded {
    #[step]
    async fn first(&self, scope: &mut Scope<'_>, message: &Load) -> Result<()> {
        insert(scope, message.n, 1).await
    }

    #[step]
    async fn second(&self, scope: &mut Scope<'_>, message: &Load) -> Result<()> {
        insert(scope, message.n, 2).await
    }

    #[step]
    async fn third(&self, scope: &mut Scope<'_>, message: &Load) -> Result<()> {
        insert(scope, message.n, 3).await?;
        self.0.count();
        Ok(())
    }
}

/// The message of [`Sleeps`]: its due time, in nanoseconds since 1970.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.sleep")]
pub(crate) struct Sleep {
    pub(crate) due: u64,
}

/// Notes its delay after waking up.
pub(crate) struct Sleeps(Meter);

#[saga]
#[subscribes(Sleep)]
impl Sleeps {
    #[step]
    async fn wake(&self, _: &mut Scope<'_>, message: &Sleep) -> Result<()> {
        self.0.late_since(message.due);
        Ok(())
    }
}

/// The message of [`Approvals`]; its number is the key of the signal.
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.request")]
pub(crate) struct Request {
    pub(crate) n: i64,
}

/// The signal of [`Approvals`]: the time at which it was sent, in nanoseconds since 1970.
#[derive(Signal, Serialize, Deserialize)]
#[signal(name = "bench.approval", retention = "1 day")]
pub(crate) struct Approval {
    pub(crate) due: u64,
}

/// Notes its delay after its signal.
pub(crate) struct Approvals(Meter);

#[saga]
#[subscribes(Request)]
impl Approvals {
    #[step(awaits(Approval, by = number))]
    async fn approve(&self, _: &mut Scope<'_>, _: &Request, approval: &Approval) -> Result<()> {
        self.0.late_since(approval.due);
        Ok(())
    }

    async fn number(&self, _: &mut Scope<'_>, request: &Request) -> Result<String> {
        Ok(request.n.to_string())
    }
}

/// The user transactions of a [`Tree`] that succeeds: two of the root, and one of each other run.
pub(crate) const TREE_STEPS: f64 = 8.0;

/// The user transactions of a [`Tree`] that fails in its last step: seven forward, and seven that compensate
/// them.
pub(crate) const TREE_ROLLBACK_STEPS: f64 = 14.0;

/// The message of [`Tree`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.tree")]
pub(crate) struct Plant {
    pub(crate) n: i64,
    pub(crate) fails: bool,
}

#[derive(Debug)]
struct Felled;

impl std::fmt::Display for Felled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the last step fails, as it should")
    }
}

impl std::error::Error for Felled {}

/// A root with three children of different handlers, and one grandchild below each.
pub(crate) struct Tree(Meter);

#[saga]
#[subscribes(Plant)]
impl Tree {
    #[step(rollback = unplace)]
    async fn place(&self, scope: &mut Scope<'_>, message: &Plant) -> Result<()> {
        insert(scope, message.n, 1).await?;
        scope.launch(GrowLeft { n: message.n }).await?;
        scope.launch(GrowMiddle { n: message.n }).await?;
        scope.launch(GrowRight { n: message.n }).await?;
        Ok(())
    }

    async fn unplace(&self, scope: &mut Scope<'_>, message: &Plant, _: &Failure) -> Result<()> {
        insert(scope, message.n, -1).await?;
        self.0.count();
        Ok(())
    }

    #[step]
    async fn confirm(&self, scope: &mut Scope<'_>, message: &Plant) -> Result<()> {
        insert(scope, message.n, 2).await?;
        if message.fails {
            return Err(Felled.into());
        }
        self.0.count();
        Ok(())
    }
}

/// A child of [`Tree`] with one grandchild, or such a grandchild: one step with one INSERT, compensated by another.
macro_rules! branch {
    ($saga:ident, $message:ident, $topic:literal $(, $below:ident)?) => {
        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = $topic)]
        struct $message {
            n: i64,
        }

        #[derive(Default)]
        struct $saga;

        #[saga]
        #[subscribes($message)]
        impl $saga {
            #[step(rollback = undo)]
            async fn act(&self, scope: &mut Scope<'_>, message: &$message) -> Result<()> {
                insert(scope, message.n, 1).await?;
                $(scope.launch($below { n: message.n }).await?;)?
                Ok(())
            }

            async fn undo(&self, scope: &mut Scope<'_>, message: &$message, _: &Failure) -> Result<()> {
                insert(scope, message.n, -1).await
            }
        }
    };
}

branch!(Left, GrowLeft, "bench.left", EndLeft);
branch!(Middle, GrowMiddle, "bench.middle", EndMiddle);
branch!(Right, GrowRight, "bench.right", EndRight);
branch!(LeafLeft, EndLeft, "bench.left.leaf");
branch!(LeafMiddle, EndMiddle, "bench.middle.leaf");
branch!(LeafRight, EndRight, "bench.right.leaf");

/// The message of [`Fan`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.fan")]
pub(crate) struct Spread {
    pub(crate) n: i64,
    pub(crate) children: i64,
}

/// Launches many children at once, and goes on when they have ended.
pub(crate) struct Fan(Meter);

#[saga]
#[subscribes(Spread)]
impl Fan {
    #[step]
    async fn spread(&self, scope: &mut Scope<'_>, message: &Spread) -> Result<()> {
        for n in 0..message.children {
            scope.launch(Part { parent: message.n, n }).await?;
        }
        Ok(())
    }

    #[step]
    async fn gather(&self, _: &mut Scope<'_>, message: &Spread) -> Result<()> {
        self.0.parent_resumed(message.n);
        self.0.count();
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.child")]
struct Part {
    parent: i64,
    n: i64,
}

/// One step with one INSERT.
struct Child(Meter);

#[saga]
#[subscribes(Part)]
impl Child {
    #[step]
    async fn act(&self, scope: &mut Scope<'_>, message: &Part) -> Result<()> {
        insert(scope, message.n, 1).await?;
        self.0.child_ended(message.parent);
        Ok(())
    }
}

/// The message of [`Circles`].
#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.circle")]
pub(crate) struct Circle {
    pub(crate) iterations: u32,
    /// Whether each iteration launches a child.
    pub(crate) launches: bool,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "bench.round")]
struct GoRound {
    n: u32,
}

/// A step that is repeated, each time with a value for its compensation, and fails in the end.
#[derive(Default)]
struct Circles;

#[saga]
#[subscribes(Circle)]
impl Circles {
    #[step(rollback = unturn)]
    async fn turn(&self, scope: &mut Scope<'_>, circle: &Circle) -> Result<With<CirclesStep, u32>> {
        let n = scope.iteration();
        if circle.launches {
            scope.launch(GoRound { n }).await?;
        }
        Ok(if n + 1 < circle.iterations { Next::Repeat } else { Next::Continue }.with(n))
    }

    async fn unturn(&self, scope: &mut Scope<'_>, _: &Circle, n: &u32, _: &Failure) -> Result<()> {
        if *n == scope.iteration() { Ok(()) } else { Err(Error::msg("the value is another iteration's")) }
    }

    #[step]
    async fn end(&self, _: &mut Scope<'_>, _: &Circle) -> Result<()> {
        Err(Felled.into())
    }
}

/// A child of [`Circles`]: one step, which is compensated.
#[derive(Default)]
struct Round;

#[saga]
#[subscribes(GoRound)]
impl Round {
    #[step(rollback = undo)]
    async fn act(&self, _: &mut Scope<'_>, _: &GoRound) -> Result<()> {
        Ok(())
    }

    async fn undo(&self, _: &mut Scope<'_>, _: &GoRound, _: &Failure) -> Result<()> {
        Ok(())
    }
}
