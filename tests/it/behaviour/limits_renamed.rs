//! Limits of sagas that get other names, and of others that get their former ones.

use super::*;
use crate::support::{Database, warnings};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "renamed.task")]
struct Task;

/// Several programs with a saga of this name.
macro_rules! saga {
    ($name:ident: $($attribute:tt)*) => {
        #[derive(Default)]
        struct $name;

        #[saga($($attribute)*)]
        #[subscribes(Task)]
        impl $name {
            #[step]
            async fn work(&self, _: &mut Scope<'_>, _: &Task) -> Result<()> {
                Ok(())
            }
        }
    };
}

saga!(First: name = "renamed-first", concurrency = 2);
saga!(Renamed: name = "renamed-second", was = "renamed-first", concurrency = 2);
saga!(Kept: name = "renamed-second", concurrency = 2);
saga!(OtherFree: name = "renamed-first");
saga!(OtherLimited: name = "renamed-first", concurrency = 9);

/// The recorded limits: each saga with its names and its concurrency.
async fn recorded(db: &Database) -> Vec<String> {
    db.texts("SELECT saga || ' ' || handlers::text || ' ' || concurrency FROM scoop.run_limit ORDER BY saga")
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn program_with_the_former_name_decides_for_both_names() -> Result<()> {
    let db = Database::new().await;
    let former = db.scoop().only::<First>().start().await?;
    assert_eq!(recorded(&db).await, ["renamed-first {renamed-first} 2"]);
    let newer = db.scoop().only::<Renamed>().start().await?;
    assert_eq!(recorded(&db).await, ["renamed-second {renamed-first,renamed-second} 2"]);
    let again = db.scoop().only::<First>().start().await?;
    assert_eq!(recorded(&db).await, ["renamed-first {renamed-first,renamed-second} 2"]);
    for scoop in [former, newer, again] {
        scoop.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn saga_that_gets_the_former_name_of_another_has_a_limit_of_its_own() -> Result<()> {
    let db = Database::new().await;
    db.scoop().only::<Renamed>().start().await?.shutdown().await?;
    let free = db.scoop().only::<Kept>().only::<OtherFree>().start().await?;
    assert_eq!(recorded(&db).await, ["renamed-second {renamed-second} 2"]);
    free.shutdown().await?;
    for _ in 0..2 {
        let limited = db.scoop().only::<Kept>().only::<OtherLimited>().start().await?;
        assert_eq!(
            recorded(&db).await,
            ["renamed-first {renamed-first} 9", "renamed-second {renamed-second} 2"]
        );
        limited.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn program_starts_although_forged_limits_list_too_many_names() -> Result<()> {
    const LEFT_OUT: &str = "event=\"limit_names_left_out\"";
    let db = Database::new().await;
    db.scoop().only::<Renamed>().start().await?.shutdown().await?;
    db.execute(
        "DELETE FROM scoop.run_limit;
         INSERT INTO scoop.run_limit (saga, handlers, concurrency)
         SELECT saga, ARRAY[saga, 'renamed-first'] || ARRAY(SELECT saga || n FROM generate_series(1, 600) n), 1
         FROM (VALUES ('renamed-first'), ('renamed-second'), ('z1'), ('z2')) sagas (saga)",
    )
    .await;
    assert_eq!(warnings(LEFT_OUT), [""; 0]);
    let scoop = db.scoop().only::<Renamed>().start().await?;
    let reported = warnings(LEFT_OUT);
    assert!(reported.iter().any(|line| line.contains("saga=\"renamed-second\"")), "{reported:?}");
    let listed = "SELECT handlers::text FROM scoop.run_limit WHERE 'renamed-first' = ANY (handlers)";
    assert_eq!(db.texts(listed).await, ["{renamed-first,renamed-second}"]);
    assert_eq!(scoop.launch(Task).await?.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
