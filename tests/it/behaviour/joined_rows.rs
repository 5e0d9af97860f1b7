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
    assert!(scoop.operate().runs().waiting_members().await?.is_empty());
    Ok(())
}

/// A note that neither a set nor `scoop.launch` can hold: a number that is beyond what programs can read, or numbers
/// that the database writes with 301 digits.
fn unfit_notes() -> [Value; 2] {
    [Value::from(f64::MAX), Value::from(vec![1e300; 30_000])]
}

#[tokio::test(flavor = "multi_thread")]
async fn message_that_no_set_can_hold_fails_its_own_collector_and_no_partner_waits_for_it() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    for unfit in unfit_notes() {
        let sold = scoop.launch(Sold { seat: 7, notes: unfit }).await?;
        let Outcome::RolledBack(failure) = sold.ends().await? else { panic!("it failed") };
        let why = failure.root_causes()[0].to_string();
        assert!(why.contains("tickets.sold") && why.contains("entrance"), "{why}");
    }
    assert!(scoop.operate().runs().waiting_members().await?.is_empty());
    assert_eq!(scoop.launch(Printed { seat: 7 }).await?.ends().await?, Outcome::Committed);
    assert_eq!(scoop.launch(Sold { seat: 7, notes: Value::Null }).await?.ends().await?, Outcome::Committed);
    eventually("the set has started", async || notes.all() == ["seat 7 of 7"]).await;
    Ok(())
}

/// The payload of a recorded message became one that no set can hold.
async fn spoil(db: &Database) {
    let spoil = "UPDATE scoop.message m SET payload = jsonb_set(m.payload, '{notes}', '1e400') \
                 FROM scoop.join_member j WHERE j.message_id = m.id AND j.joined IS NULL";
    sqlx::query(spoil).execute(db.pool()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_message_that_no_set_can_hold_is_set_aside_and_its_partner_waits_for_the_next() -> Result<()>
{
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    scoop.launch(Sold { seat: 7, notes: Value::Null }).await?.ends().await?;
    spoil(&db).await;
    assert_eq!(scoop.launch(Printed { seat: 7 }).await?.ends().await?, Outcome::Committed);
    let waiting = scoop.operate().runs().waiting_members().await?;
    let refused: Vec<_> = waiting.iter().map(|member| (&*member.topic, member.refused.is_some())).collect();
    assert_eq!(refused, [("tickets.sold", true), ("tickets.printed", false)]);
    scoop.launch(Sold { seat: 7, notes: Value::Null }).await?.ends().await?;
    eventually("the set has started", async || notes.all() == ["seat 7 of 7"]).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_message_that_no_set_can_hold_stops_no_other() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let overdue = async |seat| {
        scoop.launch(Sold { seat, notes: Value::Null }).await?.ends().await?;
        if seat == 7 {
            spoil(&db).await;
        }
        let set = "UPDATE scoop.join_member SET expires_at = now() WHERE key = $1";
        sqlx::query(set).bind(seat.to_string()).execute(db.pool()).await?;
        Ok::<_, scoop::Error>(())
    };
    overdue(7).await?;
    overdue(8).await?;
    // Has the limits looked at.
    scoop.launch(Sold { seat: 9, notes: Value::Null }).await?.ends().await?;
    eventually("the other is launched", async || {
        db.texts("SELECT key FROM scoop.join_member WHERE joined IS NOT NULL").await == ["8"]
    })
    .await;
    let refused = db.texts("SELECT key FROM scoop.join_member WHERE refused IS NOT NULL").await;
    assert_eq!(refused, ["7"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn key_that_another_session_locks_holds_up_no_other_saga_and_no_other_key() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let mut other = db.pool().begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('entrance 7', 1))")
        .execute(&mut *other)
        .await?;
    let mut members = vec![];
    for _ in 0..10 {
        members.push(scoop.launch(Sold { seat: 7, notes: Value::Null }).await?);
    }
    assert_eq!(scoop.launch(Sold { seat: 8, notes: Value::Null }).await?.ends().await?, Outcome::Committed);
    let held = "SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    assert!(db.texts(held).await.is_empty(), "no session waits for the lock");
    assert_eq!(db.texts("SELECT key FROM scoop.join_member").await, ["8"]);
    other.rollback().await?;
    for member in members {
        assert_eq!(member.ends().await?, Outcome::Committed);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn overdue_keys_that_other_sessions_lock_hold_up_no_other_limit() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let mut other = db.pool().begin().await?;
    let lock = "SELECT count(pg_advisory_xact_lock(hashtextextended('entrance ' || n, 1))) FROM generate_series(1, 30) n";
    sqlx::query(lock).execute(&mut *other).await?;
    // Forty of the first key, and one of each other key.
    let overdue = "INSERT INTO scoop.join_member (run, saga, key, topic, message_id, expires_at) \
                   SELECT gen_random_uuid(), 'entrance', greatest(n - 40, 1), 'tickets.sold', gen_random_uuid(), \
                          now() - interval '1 hour' FROM generate_series(1, 70) n";
    sqlx::query(overdue).execute(db.pool()).await?;
    let sold = scoop.launch(Sold { seat: 31, notes: Value::Null }).await?;
    assert_eq!(sold.ends().await?, Outcome::Committed);
    let set = "UPDATE scoop.join_member SET expires_at = now() WHERE key = '31'";
    sqlx::query(set).execute(db.pool()).await?;
    // Has the limits looked at.
    scoop.launch(Sold { seat: 32, notes: Value::Null }).await?.ends().await?;
    eventually("the other is launched", async || {
        db.texts("SELECT key FROM scoop.join_member WHERE joined IS NOT NULL").await == ["31"]
    })
    .await;
    other.rollback().await?;
    eventually("no other is overdue", async || {
        db.texts("SELECT count(*)::text FROM scoop.join_member WHERE refused IS NOT NULL").await == ["70"]
    })
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn member_whose_message_is_not_stored_is_set_aside_and_its_partner_waits_for_the_next() -> Result<()> {
    let (db, notes) = (Database::new().await, Notes::default());
    let scoop = start(&db, &notes).await?;
    let forged = "INSERT INTO scoop.join_member (run, saga, key, topic, message_id) \
                  VALUES (gen_random_uuid(), 'entrance', '7', 'tickets.sold', gen_random_uuid())";
    sqlx::query(forged).execute(db.pool()).await?;
    assert_eq!(scoop.launch(Printed { seat: 7 }).await?.ends().await?, Outcome::Committed);
    let waiting = scoop.operate().runs().waiting_members().await?;
    let waiting: Vec<_> = waiting.iter().map(|member| (&*member.topic, member.refused.as_deref())).collect();
    let why = Some("scoop.message has no row with its id");
    assert_eq!(waiting, [("tickets.sold", why), ("tickets.printed", None)]);
    scoop.launch(Sold { seat: 7, notes: Value::Null }).await?.ends().await?;
    eventually("the set has started", async || notes.all() == ["seat 7 of 7"]).await;
    Ok(())
}
