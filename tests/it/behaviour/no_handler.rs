//! Messages without a handler: refused where one is required, otherwise logged.

use super::*;
use crate::support::{Database, eventually, warnings};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "no-handler.charge", handlers = "required")]
struct Charge;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "no-handler.charged")]
struct Charged;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "no-handler.remark")]
struct Remark;

/// The launch of a step.
#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "no-handler.bill")]
enum Bill {
    Charge,
    Detached,
    RequiredRemark,
    Both,
}

handler! {
    Charger: "no-handler-charger" on Charge;
    step "charge" charge => done();
}

handler! {
    Notary: "no-handler-notary" on Charged;
    step "note" note => done();
}

#[derive(Default)]
struct Biller;

#[saga(name = "no-handler-biller")]
#[subscribes(Bill)]
impl Biller {
    #[step]
    async fn bill(&self, scope: &mut Scope<'_>, bill: &Bill) -> Result<()> {
        match bill {
            Bill::Charge => scope.launch(Charge).await?,
            Bill::Detached => scope.detach(Charge).await?,
            Bill::RequiredRemark => scope.launch(Remark).required().await?,
            Bill::Both => {
                scope.launch(Charged).required().await?;
                scope.launch(Remark).await?
            }
        };
        Ok(())
    }
}

#[track_caller]
fn is_refused<T>(launched: std::result::Result<T, RuntimeError>, near: &[&str]) {
    let Err(error) = launched else { panic!("it was launched") };
    assert!(error.is_no_handler(), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("no handler is subscribed to topic `no-handler.charge`, and `"), "{text}");
    let near: Vec<_> = near.iter().map(|topic| format!("`{topic}`")).collect();
    let near = format!("no_handler::Charge` requires one; did you mean {}?; correct", near.join(" or "));
    assert!(text.contains(&near), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn required_handler_missing_client_launch_is_refused() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Notary,)).await?;
    for scoop in [&scoop, &db.client()] {
        let near = ["no-handler.charged"];
        is_refused(scoop.launch(Charge).await, &near);
        is_refused(scoop.launch(Charge).unique("7").await, &near);
        is_refused(scoop.launch_all([Charge, Charge]).await, &near);
        let other = scoop.launch(Remark).required().await.map(drop).expect_err("it has no handler");
        assert_eq!(
            other.to_string(),
            format!(
                "no handler is subscribed to topic `no-handler.remark`, and `{}` requires one; topics with handlers: \
                 `no-handler.charged`; correct the topic, or first start a program with a saga that subscribes to it",
                std::any::type_name::<Remark>()
            )
        );
        let many = scoop.launch_all([Remark, Remark]).required().await;
        assert!(many.is_err_and(|error| error.is_no_handler()));
    }
    assert_eq!(db.history().await.rows().len(), 0);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn required_handler_present_launch_runs() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Charger, Biller)).await?;
    for scoop in [&scoop, &db.client()] {
        assert_eq!(scoop.launch(Charge).await?.ends().await?, Outcome::Committed);
        for charge in scoop.launch_all([Charge, Charge]).required().await? {
            assert_eq!(charge.ends().await?, Outcome::Committed);
        }
        for bill in [Bill::Charge, Bill::Detached] {
            assert_eq!(scoop.launch(bill).await?.ends().await?, Outcome::Committed);
        }
    }
    scoop.shutdown().await?;
    db.history().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn required_handler_missing_step_fails_and_launches_nothing() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Biller,)).await?;
    for (bill, topic) in [
        (Bill::Charge, "no-handler.charge"),
        (Bill::Detached, "no-handler.charge"),
        (Bill::RequiredRemark, "no-handler.remark"),
    ] {
        let outcome = scoop.launch(bill).await?.ends().await?;
        let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.kind, "NoHandler");
        assert!(failure.message.contains(&format!("topic `{topic}`")), "{failure}");
        assert!(failure.message.contains("topics with handlers: `no-handler.bill`"), "{failure}");
        let [place] = &failure.stack_trace[..] else { panic!("{failure:?}") };
        assert!(place.file_name.ends_with("no_handler.rs"), "{place:?}");
        let mut lines = (1..).zip(include_str!("no_handler.rs").lines());
        let line = lines.find(|(number, _)| *number == place.line_number).map(|(_, line)| line);
        let launches = ["scope.launch(Charge)", "scope.detach(Charge)", "scope.launch(Remark).required()"];
        assert!(line.is_some_and(|line| line.contains(launches[bill as usize])), "{place:?}: {line:?}");
    }
    scoop.shutdown().await?;
    let history = db.history().await;
    assert_eq!((history.count("EMITTED"), history.count("SUSPENDED")), (3, 0));
    assert_eq!(db.unfinished().await, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unhandled_topic_is_warned_about_once_in_each_process() -> Result<()> {
    let of_topic = || warnings("topic=\"no-handler.remark\"").len();
    let before = of_topic();
    let db = Database::new().await;
    let scoop = db.start((Notary, Biller)).await?;
    // The step launches on a topic that has a handler, too.
    scoop.launch(Bill::Both).await?.ends().await?;
    eventually("the warning of a step", async || of_topic() == before + 1).await;
    scoop.launch_all([Remark, Remark]).await?;
    scoop.launch(Bill::Both).await?.ends().await?;
    assert_eq!(of_topic(), before + 1);
    let client = db.client();
    client.launch(Remark).await?;
    eventually("the warning of a client", async || of_topic() == before + 2).await;
    client.launch(Remark).await?;
    scoop.shutdown().await?;
    assert_eq!(of_topic(), before + 2);
    Ok(())
}
