//! Messages that no set can hold, and waiting messages that a join does not know any more.

use serde_json::{Value, json};

use super::*;
use crate::support::{Database, Notes, eventually};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "tickets.sold")]
struct Sold {
    seat: u32,
    notes: Value,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "tickets.printed")]
struct Printed {
    seat: u32,
}

struct Entrance(Notes);

#[saga(name = "entrance")]
#[subscribes(join(Sold, Printed, by = seat, within = "1 day"))]
impl Entrance {
    #[step]
    async fn open(&self, _: &mut Scope<'_>, of: &EntranceMessage) -> Result<()> {
        self.0.add(format!("seat {} of {}", of.sold.seat, of.printed.seat));
        Ok(())
    }
}

async fn start(db: &Database, notes: &Notes) -> Result<Scoop> {
    Ok(db.scoop().only::<Entrance>().provide(Entrance(notes.clone())).start().await?)
}

/// A deployment removed the topic `gone` from the join while a message on it waited.
#[tokio::test(flavor = "multi_thread")]
async fn overdue_message_of_a_removed_topic_ends_no_wait() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let gone = "INSERT INTO scoop.join_member (run, saga, key, topic, message_id, expires_at) \
                VALUES (gen_random_uuid(), 'entrance', '7', 'gone', gen_random_uuid(), now() - interval '1 hour')";
    sqlx::query(gone).execute(db.pool()).await?;
    scoop.launch(Sold { seat: 7, notes: Value::Null }).await?.ends().await?;
    scoop.launch(Printed { seat: 7 }).await?.ends().await?;
    eventually("the set has started", async || notes.all() == ["seat 7 of 7"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_too_deep_for_a_set_fails_its_collector_and_is_not_retried() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let deep = (0..98).fold(json!(1), |value, _| json!([value]));
    let sold = scoop.launch(Sold { seat: 7, notes: deep }).await?;
    let Outcome::RolledBack(failure) = sold.ends().await? else { panic!("it failed") };
    let why = failure.root_causes()[0].to_string();
    assert!(why.contains("tickets.sold") && why.contains("entrance"), "{why}");
    assert!(scoop.waiting_members().await?.is_empty());
    Ok(())
}
