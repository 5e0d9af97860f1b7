//! Messages, from launch to handler (scenarios MQ).

use std::collections::HashSet;

use scoop::errors::SetupError;

use super::*;
use crate::support::{Database, Gate};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "test-topic")]
struct Greeting {
    text: String,
    priority: String,
}

impl Greeting {
    fn new(text: &str) -> Self {
        Self { text: text.into(), priority: "HIGH".into() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mq_01_launched_message_is_stored_unchanged() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().client().await?;
    let root = scoop.launch(Greeting::new("Hello, World!")).await?;

    let sql = "SELECT concat_ws(' ', id, topic, payload, created_at IS NOT NULL) FROM scoop.message";
    let payload = r#"{"text": "Hello, World!", "priority": "HIGH"}"#;
    let expected = format!("{} test-topic {payload} t", root.message_id());
    assert_eq!(db.texts(sql).await, [expected]);
    Ok(())
}

mod mq_02 {
    use super::*;

    #[derive(Default)]
    pub(super) struct Receiver;

    #[saga]
    #[subscribes(Greeting)]
    impl Receiver {
        #[step]
        async fn receive(&self, scope: &mut Scope<'_>, greeting: &Greeting) -> Result<()> {
            let received = sqlx::query("INSERT INTO received VALUES ($1)").bind(&greeting.text);
            received.execute(scope.tx().await?).await?;
            Ok(())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn mq_02_a_subscriber_receives_all_messages() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE received (text text)").await;
        let scoop = db.start((Receiver,)).await?;
        let texts = ["a", "b", "c", "d", "e"];
        for root in scoop.launch_all(texts.map(Greeting::new)).await? {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }
        assert_eq!(db.texts("SELECT text FROM received ORDER BY text").await, texts);
        Ok(())
    }
}

mod mq_03 {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "numbers")]
    struct Number(i32);

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "otherTopic")]
    struct Other;

    #[derive(Default)]
    struct Forwarder;

    #[saga]
    #[subscribes(Number)]
    impl Forwarder {
        #[step]
        async fn forward(&self, scope: &mut Scope<'_>, Number(index): &Number) -> Result<()> {
            scope.detach(Other).await?;
            if *index == 1 { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn mq_03_a_root_message_of_a_failing_step_is_gone() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Forwarder,)).await?;
        let roots = scoop.launch_all([Number(1), Number(2)]).await?;
        assert!(matches!(roots[0].ends().await?, Outcome::RolledBack(_)));
        assert_eq!(roots[1].ends().await?, Outcome::Committed);
        let others = "SELECT count(*) FROM scoop.message WHERE topic = 'otherTopic'";
        assert_eq!(db.number(others).await, 1);
        Ok(())
    }
}

mod mq_04 {
    use super::*;

    handler! {
        Blocking(gate): "blocking" on Greeting;
        step "block" block => at_gate();
    }

    /// An instance of the reference is here a process that does one thing at a time.
    #[tokio::test(flavor = "multi_thread")]
    async fn mq_04_three_instances_run_three_messages_at_once() -> Result<()> {
        let db = Database::new().await;
        let gate = Gate::default();
        let mut instances = vec![];
        for _ in 0..3 {
            let instance = Scoop::builder().postgres(db.another_pool(5).await).only::<Blocking>();
            let instance = instance.provide(Blocking { gate: gate.clone() }).concurrency(1);
            instances.push(instance.start().await?);
        }
        let roots = instances[0].launch_all(["a", "b", "c"].map(Greeting::new)).await?;
        gate.arrivals(3).await;
        gate.open(3);
        for root in roots {
            assert_eq!(root.ends().await?, Outcome::Committed);
        }

        let history = db.history().await;
        let named = history.rows().iter().filter(|row| row.handler.is_some());
        let (names, workers): (HashSet<_>, HashSet<_>) =
            named.map(|row| (row.handler.clone(), row.worker.clone())).unzip();
        assert_eq!((names.len(), workers.len()), (1, 3), "{history}");
        Ok(())
    }
}

/// Here it is the program, not each saga, that has a number of instances.
#[tokio::test(flavor = "multi_thread")]
async fn mq_05_to_run_nothing_at_a_time_is_refused() {
    let db = Database::new().await;
    let Err(error) = db.scoop().only::<mq_02::Receiver>().concurrency(0).start().await else {
        panic!("it started");
    };
    assert!(error.to_string().contains("concurrency must be >= 1"), "{error}");
}

/// Subscriptions need no connections of their own here, so their number is the same always.
#[tokio::test(flavor = "multi_thread")]
async fn mq_06_the_required_connections_are_known_and_demanded() -> Result<()> {
    let db = Database::new().await;
    let required = scoop::Builder::required_connections();
    let start = async |connections| {
        let pool = db.another_pool(connections).await;
        Scoop::builder().postgres(pool).only::<mq_02::Receiver>().start().await
    };
    start(required).await?.shutdown().await?;
    assert_eq!(scoop::Builder::required_connections(), required);
    let Err(error) = start(required - 1).await else { panic!("it started") };
    assert_eq!(error.setup(), [SetupError::PoolTooSmall { max: required - 1, required }], "{error:?}");
    Ok(())
}

mod mq_07 {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("Custom exception for testing exception storage")]
    struct CustomTestException;

    #[derive(Default)]
    struct Throwing;

    #[saga]
    #[subscribes(Greeting)]
    impl Throwing {
        #[step]
        async fn throw(&self, _: &mut Scope<'_>, _: &Greeting) -> Result<()> {
            Err(CustomTestException)?
        }
    }

    /// The name of a Rust type stands where the reference has the name of a class.
    #[tokio::test(flavor = "multi_thread")]
    async fn mq_07_an_error_is_stored_with_the_name_of_its_type() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((Throwing,)).await?;
        let outcome = scoop.launch(Greeting::new("")).await?.ends().await?;

        let history = db.history().await;
        let stored = history.only("ROLLING_BACK", "throwing").exception.clone().expect("a failure");
        assert!(stored.kind.ends_with("messages::mq_07::CustomTestException"), "{}", stored.kind);
        assert!(stored.to_string().ends_with("Custom exception for testing exception storage"));
        assert!(stored.stack_trace[0].file_name.ends_with("messages.rs"));
        assert_eq!(outcome, Outcome::RolledBack(stored));
        Ok(())
    }
}
