//! Sleeping and scheduling (scenarios SL).

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::support::{Database, calls_of, invoked};

fn sleeps() -> Value {
    json!({"SleepUntilKey": {"wakeAfter": "…"}})
}

mod sl_01 {
    use super::*;

    const NAP: Duration = Duration::from_millis(150);

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.sleep(NAP).await
        }

        step "2" two => done();
    }

    /// A sleeping run costs nothing before it wakes, unlike in the reference. SEEN is written then,
    /// with everything else.
    #[tokio::test(flavor = "multi_thread")]
    async fn sl_01_sleep_between_two_steps() -> Result<()> {
        let run = Run::commits((RootHandler,), Root).await?;

        let history = run.history().await;
        history.expect_with(
            &[("S", sleeps())],
            "M0 EMITTED · ·
            M0 SEEN root-handler ·
            M0 SUSPENDED root-handler 0 next=1
            M1 EMITTED root-handler 1 ctx=S
            M0 SUSPENDED root-handler 1 next=2
            M1 SEEN sleep-handler · ctx=S
            M1 SUSPENDED sleep-handler sleep ctx=S
            M1 COMMITTED sleep-handler sleep ctx=S
            M0 SUSPENDED root-handler 2
            M0 COMMITTED root-handler 2",
        );
        let rows = history.rows();
        let slept = rows[6].micros() - rows[2].micros();
        assert!(slept >= i64::try_from(NAP.as_micros())?, "slept for {slept} µs");
        assert_eq!(
            run.db
                .texts("SELECT topic || ' ' || payload FROM scoop.message ORDER BY created_at OFFSET 1")
                .await,
            ["sleep-9d24148d-d851-4107-8beb-e5c57f5cca88 {}"]
        );
        run.calls().expect(
            "invoke root-handler/0
            invoke root-handler/2",
        );
        Ok(())
    }
}

mod sl_02 {
    use std::time::SystemTime;

    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Appointment {
        at: SystemTime,
    }

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Appointment)]
    impl RootHandler {
        #[step(name = "0", at = appointed)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Appointment) -> Result<()> {
            invoked(scope);
            Ok(())
        }

        async fn appointed(&self, _: &mut Scope<'_>, appointment: &Appointment) -> Result<SystemTime> {
            Ok(appointment.at)
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn sl_02_a_step_scheduled_for_a_point_in_time() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler,)).await?;
        let now = db.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await;
        let micros = now + 150_000;
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(micros.try_into()?);
        let root = scoop.launch(Appointment { at }).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);

        let history = db.history().await;
        history.expect_with(
            &[("S", sleeps())],
            r#"M0 EMITTED · ·
            M0 SEEN root-handler ·
            M1 EMITTED root-handler "0 (waiting for scheduled time)" ctx=S
            M0 SUSPENDED root-handler "0 (waiting for scheduled time)" next=1
            M1 SEEN sleep-handler · ctx=S
            M1 SUSPENDED sleep-handler sleep ctx=S
            M1 COMMITTED sleep-handler sleep ctx=S
            M0 SUSPENDED root-handler 0
            M0 COMMITTED root-handler 0"#,
        );
        assert!(history.rows()[7].micros() >= micros, "it ran before its time");
        calls_of(&root).expect("invoke root-handler/0");
        Ok(())
    }
}
