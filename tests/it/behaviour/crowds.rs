//! Many children that fail at once, beside many that do not: the recorded failures.

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "crowds")]
struct Gather {
    failing: u32,
    good: u32,
    text_bytes: usize,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "members-of-crowds")]
struct Join {
    text_bytes: Option<usize>,
}

#[derive(Default)]
struct Crowd;

#[saga(name = "crowd")]
#[subscribes(Gather)]
impl Crowd {
    #[step]
    async fn gather(&self, scope: &mut Scope<'_>, crowd: &Gather) -> Result<()> {
        for _ in 0..crowd.failing {
            scope.launch(Join { text_bytes: Some(crowd.text_bytes) }).await?;
        }
        for _ in 0..crowd.good {
            scope.launch(Join { text_bytes: None }).await?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Member;

#[saga(name = "member")]
#[subscribes(Join)]
impl Member {
    #[step(rollback = leave)]
    async fn join(&self, _: &mut Scope<'_>, join: &Join) -> Result<()> {
        let Some(bytes) = join.text_bytes else {
            return Ok(());
        };
        Err(Error::msg(format!("begins {}ends", "x".repeat(bytes))))
    }

    async fn leave(&self, _: &mut Scope<'_>, _: &Join, why: &Failure) -> Result<()> {
        assert!(why.root_causes()[0].message.starts_with("begins "), "{}", why.report());
        Ok(())
    }
}

/// The failure of such a crowd, and how many bytes of JSON there are in the record of failures.
async fn failed(builder: scoop::Builder, db: &Database, crowd: Gather) -> Result<(Failure, i64)> {
    let scoop = builder.only::<Crowd>().only::<Member>().start().await?;
    let outcome = scoop.launch(crowd).await?.ends().await?;
    let Outcome::RolledBack(failure) = outcome else { panic!("{outcome:?}") };
    let bytes = "SELECT sum(octet_length(exception::text)) FROM scoop.message_event";
    Ok((failure, db.number(bytes).await))
}

#[tokio::test(flavor = "multi_thread")]
async fn record_of_a_failing_crowd_beside_good_children_grows_with_their_number() -> Result<()> {
    let (small, large) = (100, 400);
    let mut bytes = vec![];
    for each in [small, large] {
        let db = Database::new().await;
        let crowd = Gather { failing: each, good: each, text_bytes: 10 };
        let (failure, written) = failed(db.scoop(), &db, crowd).await?;
        assert!(failure.report().contains(&format!("and {} more like this: Error: begins", each - 50)));
        let undone = "SELECT count(*) FROM scoop.message_event WHERE type = 'ROLLED_BACK'";
        assert_eq!(db.number(undone).await, i64::from(2 * each + 1));
        bytes.push(written / i64::from(2 * each));
    }
    assert!(bytes[1] <= bytes[0] * 5 / 4 && bytes[1] < 10_000, "{bytes:?} for each child");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn beginning_and_end_of_long_error_texts_are_on_record() -> Result<()> {
    for (bytes_max, of_each) in [(None, 16_000), (Some(1_000), 8_000)] {
        let db = Database::new().await;
        let builder = db.scoop().limits(
            bytes_max.into_iter().fold(scoop::Limits::default(), scoop::Limits::failure_text_bytes_max),
        );
        let crowd = Gather { failing: 30, good: 10, text_bytes: 1_000_000 };
        let (failure, written) = failed(builder, &db, crowd).await?;
        let said = &failure.root_causes()[0].message;
        assert!(said.len() <= bytes_max.unwrap_or(8_192), "{}", said.len());
        assert!(said.starts_with("begins xx") && said.ends_with("xxends"), "{said}");
        assert!(written < 40 * of_each + 200_000, "{written} bytes");
    }
    Ok(())
}
