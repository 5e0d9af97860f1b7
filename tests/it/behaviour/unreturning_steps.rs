//! Steps that do not end, and engines that are gone: nothing waits for them for ever.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use crate::support::{Database, Gate};

fn is_without_engine<T>(waited: &Result<T, RuntimeError>) -> bool {
    let gone = "the engine is gone without a shutdown";
    waited.as_ref().is_err_and(|error| error.is_unavailable() && error.to_string().starts_with(gone))
}

/// Waits in its step until the test lets it go.
struct Waiting {
    gate: Gate,
}

#[saga(name = "waiting")]
#[subscribes(Root)]
impl Waiting {
    #[step]
    async fn wait(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        assert_eq!(scope.attempt(), 0, "nothing has failed");
        self.gate.pass().await;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn step_that_outlasts_the_limit_of_a_shutdown_is_named_and_goes_to_another_worker() -> Result<()> {
    let (db, gate) = (Database::new().await, Gate::default());
    let start = async |gate: &Gate| db.start((Waiting { gate: gate.clone() },)).await;
    let first = start(&gate).await?;
    let root = first.launch(Root).await?;
    gate.arrivals(1).await;
    let second_gate = Gate::default();
    let second = start(&second_gate).await?;
    let shutdown = first.shutdown_within(Duration::from_millis(10)).await;
    let Err(error) = &shutdown else { panic!("{shutdown:?}") };
    let steps = error.stopped_steps();
    let run = second.find(root.id()).await?.tree().await?.runs()[0].id();
    assert_eq!(steps.len(), 1, "{error:?}");
    assert_eq!((&*steps[0].saga, &*steps[0].step, steps[0].run), ("waiting", "wait", run));
    let text = format!("step `wait` of saga `waiting`, run {run}");
    assert!(error.to_string().contains(&text), "{error}");
    // The first worker has handed the run back; it did not have to die.
    second_gate.arrivals(1).await;
    second_gate.open(1);
    assert_eq!(second.find(root.id()).await?.ends().await?, Outcome::Committed);
    second.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_within_a_limit_that_suffices_names_nothing() -> Result<()> {
    let gate = Gate::default();
    let run = Run::launch((Waiting { gate: gate.clone() },), Root).await?;
    gate.arrivals(1).await;
    let (stopped, ()) =
        tokio::join!(run.scoop.shutdown_within(Duration::from_secs(20)), async { gate.open(1) });
    stopped?;
    assert_eq!(run.root.ends().await?, Outcome::Committed);
    Ok(())
}

/// Blocks its thread until the test lets it go.
struct Blocking {
    gate: Gate,
    end: Mutex<Receiver<()>>,
    returned: Gate,
}

#[saga(name = "blocking")]
#[subscribes(Child)]
impl Blocking {
    #[step]
    async fn block(&self, _: &mut Scope<'_>, _: &Child) -> Result<()> {
        // The test sees that it has arrived once it may go on.
        self.gate.pass().await;
        let _ = self.end.lock().unwrap().recv();
        self.returned.open(1);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn step_that_blocks_its_thread_holds_up_no_shutdown_within_a_limit() -> Result<()> {
    let db = Database::new().await;
    let (gate, returned) = (Gate::default(), Gate::default());
    gate.open(1);
    let (go_on, end) = channel();
    let blocking = Blocking { gate: gate.clone(), end: Mutex::new(end), returned: returned.clone() };
    let first = db.scoop().only::<Blocking>().provide(blocking).start().await?;
    let root = first.launch(Child).await?;
    gate.arrivals(1).await;
    let shutdown = first.shutdown_within(Duration::from_millis(10)).await;
    let Err(error) = &shutdown else { panic!("{shutdown:?}") };
    let steps = error.stopped_steps();
    assert!(!steps.is_empty(), "{error:?}");
    assert_eq!((&*steps[0].saga, &*steps[0].step), ("blocking", "block"));

    let (other_go_on, other_end) = channel();
    other_go_on.send(()).expect("it is received");
    let other_gate = Gate::default();
    other_gate.open(1);
    let other = Blocking { gate: other_gate, end: Mutex::new(other_end), returned: Gate::default() };
    let second = db.scoop().only::<Blocking>().provide(other).start().await?;
    assert_eq!(second.find(root.id()).await?.ends().await?, Outcome::Committed);
    go_on.send(()).expect("it is received");
    returned.pass().await;
    assert_eq!(second.find(root.id()).await?.ends().await?, Outcome::Committed);
    second.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_whose_runtime_is_gone_is_an_error_at_once() -> Result<()> {
    let (db, gate) = (Arc::new(Database::new().await), Gate::default());
    let saga = Waiting { gate: gate.clone() };
    let builder = db.scoop().only::<Waiting>().provide(saga);
    // A runtime cannot be used within another one.
    let started = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let scoop = runtime.block_on(builder.start()).expect("it starts");
        let root = runtime.block_on(async { scoop.launch(Root).await }).expect("it is launched");
        (runtime, scoop, root)
    });
    let (runtime, scoop, root) = started.join().expect("it has started");
    gate.arrivals(1).await;
    let (waited, ()) = tokio::join!(root.ends(), async { runtime.shutdown_background() });
    assert!(is_without_engine(&waited), "{waited:?}");
    let waited = root.ends().await;
    assert!(is_without_engine(&waited), "{waited:?}");
    for stopped in [scoop.shutdown().await, scoop.shutdown_within(Duration::from_secs(60)).await] {
        assert!(is_without_engine(&stopped), "{stopped:?}");
    }
    Ok(())
}
