//! Commands about entities whose stored rows are damaged.

use scoop::__private::Application;
use scoop::{Applies, Decider, Entity};

use super::*;
use crate::support::Database;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Counter {
    count: u64,
}

#[entity(name = "counter", key = u8)]
impl Counter {
    fn counted(&mut self, _: &Counted) {
        self.count += 1;
    }
}

#[derive(Message, Serialize, Deserialize)]
struct Counted;

#[derive(Serialize, Deserialize)]
struct Count(u8);

#[command(entity = Counter)]
impl Count {
    fn key(&self) -> u8 {
        self.0
    }

    fn decide(&self, _: &Counter) -> Decision<Counted> {
        Decision::Accepted(Counted)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_the_type_cannot_read_fails_its_commands_and_no_others() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Count>>().start().await?;
    for key in [1, 2] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
    }
    let damage = "UPDATE scoop.entity SET state = '[\"damaged\"]' WHERE key = '1'";
    sqlx::raw_sql(damage).execute(scoop.pool()).await?;
    let sent = scoop.launch_all([Count(1), Count(2), Count(1)]).await?;
    let [one, two, again] = &*sent else { unreachable!("three were sent") };
    for damaged in [one, again] {
        let Outcome::RolledBack(failure) = damaged.wait().await? else { panic!("the state is damaged") };
        assert_eq!(failure.kind, "EntityMismatch");
        assert!(failure.message.contains("`counter` does not fit its type (key `1`)"), "{failure}");
    }
    assert!(two.decision::<Count>().await?.is_accepted());
    assert_eq!(scoop.entity::<Counter>(2).await?.state.count, 2);
    let error = scoop.entity::<Counter>(1).await.expect_err("the state is damaged").to_string();
    assert!(error.contains("the entity `counter` with the key `1` cannot be read"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn row_that_no_program_can_read_or_that_contradicts_the_events_names_its_entity() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Count>>().start().await?;
    for key in [1, 2, 3] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
    }
    let damage =
        "UPDATE scoop.entity SET state = '1e400' WHERE key = '1'; DELETE FROM scoop.entity WHERE key = '2'";
    sqlx::raw_sql(damage).execute(scoop.pool()).await?;
    let sent = scoop.launch_all([Count(1), Count(2), Count(3)]).await?;
    for (damaged, why) in sent.iter().zip(["(key `1`)", "key `2`, does not follow from its events"]) {
        let Outcome::RolledBack(failure) = damaged.wait().await? else { panic!("the row is damaged") };
        assert_eq!(failure.kind, "EntityMismatch");
        assert!(failure.message.contains("`counter`") && failure.message.contains(why), "{failure}");
    }
    assert!(sent[2].decision::<Count>().await?.is_accepted());
    let error = scoop.entity::<Counter>(1).await.expect_err("no program can read it").to_string();
    assert!(error.contains("the entity `counter` with the key `1`"), "{error}");
    let rebuilt = scoop.operate().entities().rebuild::<Counter>().await?;
    assert_eq!((rebuilt.entities, rebuilt.changed), (3, 2));
    for key in [1, 2] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
        let entity = scoop.entity::<Counter>(key).await?;
        assert_eq!((entity.version, entity.state.count), (2, 2), "of key {key}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn version_that_no_event_can_follow_names_its_entity_and_what_restores_it() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Count>>().start().await?;
    for key in [1, 2, 3] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
    }
    for (forged, constraint) in [
        ("UPDATE scoop.entity SET version = -5", "entity_version_check"),
        ("UPDATE scoop.entity_event SET version = 0", "entity_event_version_check"),
    ] {
        let error = sqlx::raw_sql(forged).execute(scoop.pool()).await.expect_err("it is impossible");
        assert!(error.to_string().contains(constraint), "{error}");
    }
    let damage = "ALTER TABLE scoop.entity DROP CONSTRAINT entity_version_check;
         UPDATE scoop.entity SET version = -5 WHERE key = '1';
         UPDATE scoop.entity SET version = 9223372036854775807 WHERE key = '2';
         INSERT INTO scoop.entity (name, key, version) VALUES ('counter', '4', -1)";
    sqlx::raw_sql(damage).execute(scoop.pool()).await?;
    let sent = scoop.launch_all([Count(1), Count(2), Count(4), Count(3)]).await?;
    let why = ["is -5: less than 0 (key `1`)", "is 9223372036854775807: the last one", "is -1: less than 0"];
    for (damaged, why) in sent.iter().zip(why) {
        let Outcome::RolledBack(failure) = damaged.wait().await? else { panic!("the row is damaged") };
        assert_eq!(failure.kind, "EntityMismatch");
        for text in ["`counter`", why, "set it in `scoop.entity` to the version of its last row"] {
            assert!(failure.message.contains(text), "{failure}");
        }
    }
    assert!(sent[3].decision::<Count>().await?.is_accepted());
    let error = scoop.entity::<Counter>(1).await.expect_err("its version is impossible").to_string();
    assert!(error.contains("`counter` with the key `1`") && error.contains("its version is -5"), "{error}");

    let error = scoop.operate().entities().rebuild::<Counter>().await.expect_err("events are missing");
    assert!(error.to_string().contains("key `2`, version 2: the event of version 2 is missing"), "{error}");
    let Some(rebuilt) = error.rebuilt() else { panic!("{error}") };
    let failed = error.not_rebuilt().len();
    assert_eq!((rebuilt.entities, rebuilt.changed, failed), (3, 2, 1), "a version below 0 is restored");
    let advice = "UPDATE scoop.entity e SET version = (
         SELECT max(v.version) FROM scoop.entity_event v WHERE (v.name, v.key) = (e.name, e.key)
     ) WHERE e.key = '2'";
    sqlx::raw_sql(advice).execute(scoop.pool()).await?;
    assert_eq!(
        scoop.operate().entities().rebuild::<Counter>().await?.entities,
        3,
        "the fourth has no events"
    );
    assert_eq!(
        scoop.operate().entities().rebuild::<Counter>().key(77).await?.entities,
        0,
        "it has no events"
    );
    for (key, version) in [(1, 2), (2, 2), (3, 3), (4, 1)] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
        let entity = scoop.entity::<Counter>(key).await?;
        assert_eq!((entity.version, entity.state.count), (version, version), "of key {key}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_infinite_times_are_listed_and_rebuilt() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Count>>().start().await?;
    for _ in 0..2 {
        assert!(scoop.send(Count(1)).await?.decision().await?.is_accepted());
    }
    let damage = "UPDATE scoop.entity_event SET at = CASE version WHEN 1 THEN '-infinity' ELSE 'infinity' END
         ::timestamptz;
         UPDATE scoop.entity SET state = '[\"damaged\"]'";
    sqlx::raw_sql(damage).execute(scoop.pool()).await?;
    let events = scoop.operate().entities().events::<Counter>(1).await?;
    let now = std::time::SystemTime::now();
    let is_later: Vec<_> = events.iter().map(|event| (event.version, event.at > now)).collect();
    assert_eq!(is_later, [(1, false), (2, true)]);
    let rebuilt = scoop.operate().entities().rebuild::<Counter>().await?;
    assert_eq!((rebuilt.entities, rebuilt.changed), (1, 1));
    assert_eq!(scoop.entity::<Counter>(1).await?.state.count, 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuild_names_the_events_that_it_cannot_apply_and_spares_the_others() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Decider<Count>>().start().await?;
    for key in [1, 2, 3, 4, 2, 3] {
        assert!(scoop.send(Count(key)).await?.decision().await?.is_accepted());
    }
    let event = "SELECT message_id FROM scoop.entity_event WHERE (key, version) = ";
    let damage = format!(
        "UPDATE scoop.message SET topic = 'counter.reset' WHERE id = ({event} ('2', 2));
         DELETE FROM scoop.entity_event WHERE (key, version) = ('3', 2);
         UPDATE scoop.entity SET state = '[\"damaged\"]' WHERE key = '4'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(damage)).execute(scoop.pool()).await?;
    let error = scoop.operate().entities().rebuild::<Counter>().await.expect_err("two are damaged");
    let text = error.to_string();
    assert!(text.starts_with("2 entities of `counter` cannot be rebuilt:"), "{text}");
    for line in [
        "key `2`, version 2: it has no application of events on topic `counter.reset`",
        "key `3`, version 2: the event of version 2 is missing",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let Some(rebuilt) = error.rebuilt() else { panic!("{error}") };
    let failed = error.not_rebuilt().len();
    assert_eq!((rebuilt.entities, rebuilt.changed, failed), (2, 1, 2));
    assert_eq!(scoop.entity::<Counter>(2).await?.state.count, 2, "it is unchanged");
    assert_eq!(scoop.entity::<Counter>(4).await?.state.count, 1, "its state is mended");
    let key =
        scoop.operate().entities().rebuild::<Counter>().key(2).await.expect_err("it is damaged").to_string();
    assert!(key.contains("key `2`, version 2"), "{key}");
    Ok(())
}

/// `Counter` in a program that has other keys.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CounterOfTexts {
    count: u64,
}

// Not by the attribute, which would make it a second entity of this name in the program of the tests.
impl Entity for CounterOfTexts {
    const NAME: &'static str = Counter::NAME;
    type Key = String;

    fn applications() -> Vec<Application> {
        vec![Application::of::<Self, Counted>()]
    }
}

impl Applies<Counted> for CounterOfTexts {
    fn apply(&mut self, _: &Counted) {
        self.count += 1;
    }
}

#[derive(Serialize, Deserialize)]
struct CountByText(String);

#[command(entity = CounterOfTexts)]
impl CountByText {
    fn key(&self) -> String {
        self.0.clone()
    }

    fn decide(&self, _: &CounterOfTexts) -> Decision<Counted> {
        Decision::Accepted(Counted)
    }
}

/// Keys are texts. So a program may change their type, and keep its entities as long as the texts stay the same.
#[tokio::test(flavor = "multi_thread")]
async fn programs_with_different_types_of_keys_decide_about_one_entity_if_the_texts_are_equal() -> Result<()>
{
    let db = Database::new().await;
    let one = db.scoop().only::<Decider<Count>>().start().await?;
    let other = db.scoop().only::<Decider<CountByText>>().start().await?;
    for _ in 0..3 {
        assert!(one.send(Count(1)).await?.decision().await?.is_accepted());
        assert!(other.send(CountByText("1".into())).await?.decision().await?.is_accepted());
    }
    assert!(other.send(CountByText("one".into())).await?.decision().await?.is_accepted());
    let counter = one.entity::<Counter>(1).await?;
    assert_eq!((counter.version, counter.state.count), (6, 6));
    assert_eq!(other.entity::<CounterOfTexts>("1".into()).await?.version, 6);
    assert_eq!(other.entity::<CounterOfTexts>("one".into()).await?.version, 1);
    Ok(())
}
