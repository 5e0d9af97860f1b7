//! Programs that start, end, and lose their sessions while others have other versions of a saga.

use std::time::Duration;

use scoop::pauses::PauseTarget;

use super::redeploys::{Hotel, launching_in, left_waiting, moved_before, notes, original};
use super::*;
use crate::support::{Database, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_start_and_end_at_once_do_so() -> Result<()> {
    let db = Database::new().await;
    db.scoop().only::<Hotel>().start().await?.shutdown().await?;
    let rounds = async |at: usize| -> Result<()> {
        for round in 0..4 {
            let builder = db.scoop();
            let builder = match (at + round) % 2 {
                0 => builder.only::<original::Trip>(),
                _ => builder.only::<moved_before::Trip>(),
            };
            builder.start().await?.shutdown().await?;
        }
        Ok(())
    };
    let all = tokio::join!(rounds(0), rounds(1), rounds(2));
    all.0.and(all.1).and(all.2)?;
    assert_eq!(db.number("SELECT count(*) FROM scoop.worker").await, 0, "all have signed off");
    Ok(())
}

/// The older program is taken for dead. Runs that only it can continue become stuck, until it has a session again.
#[tokio::test(flavor = "multi_thread")]
async fn worker_with_a_new_session_takes_runs_stuck_meanwhile() -> Result<()> {
    let (db, left) = left_waiting::<original::Trip>(launching_in("two"), 2).await?;
    let old = db.scoop().only::<original::Trip>().start().await?;
    // It cannot register again until the trigger is gone.
    db.execute(
        "CREATE TABLE gone AS SELECT id FROM scoop.worker;
         CREATE FUNCTION keep_gone() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.id IN (SELECT id FROM public.gone) THEN RAISE 'the worker stays gone'; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER keep_gone BEFORE INSERT ON scoop.worker FOR EACH ROW EXECUTE FUNCTION keep_gone()",
    )
    .await;
    let new = db.scoop().only::<moved_before::Trip>().start().await?;
    db.execute("DELETE FROM scoop.worker WHERE id IN (SELECT id FROM gone)").await;
    let hotel = db.scoop().only::<Hotel>().start().await?;
    eventually("both runs are stuck", async || {
        new.operate().failures().stuck().await.is_ok_and(|stuck| stuck.len() == 2)
    })
    .await;
    db.execute("DROP TRIGGER keep_gone ON scoop.worker").await;
    for (number, trip) in (0..).zip(&left) {
        assert_eq!(trip.ends().await?, Outcome::Committed);
        assert_eq!(notes(&db, number).await, "one@original two@original three@original");
    }
    for scoop in [old, new, hotel] {
        scoop.shutdown().await?;
    }
    Ok(())
}

/// Only the newer program continues the trip. The older one, in which its child ends, has to tell it: neither looks by itself.
#[tokio::test(flavor = "multi_thread")]
async fn run_woken_by_the_older_program_is_taken_by_the_newer_one_at_once() -> Result<()> {
    let never = Duration::from_secs(3600);
    let (db, left) = left_waiting::<original::Trip>(launching_in("one"), 1).await?;
    let nights = PauseTarget::topic("nights");
    db.client().operate().pauses().pause(nights.clone()).await?;
    let old = db.scoop().only::<original::Trip>().only::<Hotel>().poll_interval(never).start().await?;
    let new = db.scoop().only::<moved_before::Trip>().poll_interval(never).start().await?;
    db.client().operate().pauses().resume(nights).await?;
    let ends = tokio::time::timeout(Duration::from_secs(30), left[0].ends()).await;
    assert_eq!(ends.expect("the newer program was notified")?, Outcome::Committed);
    assert_eq!(notes(&db, 0).await, "one@original three@moved_before two@moved_before");
    old.shutdown().await?;
    new.shutdown().await?;
    Ok(())
}
