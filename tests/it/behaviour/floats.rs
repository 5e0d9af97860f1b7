//! Floats that JSON does not have: refused where they are stored, with the place.

use std::collections::BTreeMap;

use super::*;
use crate::support::Database;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    price: f64,
    rebate: Option<f32>,
}

#[derive(Clone, Copy, Message, Serialize, Deserialize)]
#[message(topic = "measured", reply = f64)]
enum Where {
    Value,
    Nested,
    Jump,
    Launch,
    Reply,
    Context,
    ContextOfALaunch,
    Nowhere,
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "weight")]
struct Weight(f64);

#[derive(ContextKey, Serialize, Deserialize)]
struct Rate(f64);

#[derive(Default)]
struct Scales;

#[saga(name = "scales")]
#[subscribes(Where)]
impl Scales {
    #[step(rollback = forget)]
    async fn weigh(&self, scope: &mut Scope<'_>, place: &Where) -> Result<BTreeMap<String, Vec<Line>>> {
        match place {
            Where::Launch => drop(scope.launch(Weight(f64::NAN)).await?),
            Where::Reply => scope.reply(place, f64::INFINITY)?,
            Where::Context => scope.set(Rate(f64::NEG_INFINITY))?,
            Where::ContextOfALaunch => drop(scope.launch(Weight(1.0)).with(Rate(f64::NAN)).await?),
            _ => {}
        }
        let rebate = if let Where::Nested = place { f32::NAN } else { 0.5 };
        let lines = vec![Line { price: 0.1, rebate: None }, Line { price: -0.0, rebate: Some(rebate) }];
        Ok(BTreeMap::from([("lines".into(), lines)]))
    }

    #[step(rollback = forget_one)]
    async fn divide(&self, _: &mut Scope<'_>, place: &Where) -> Result<f64> {
        Ok(if let Where::Value = place { f64::NAN } else { f64::MAX })
    }

    #[step]
    async fn finish(&self, _: &mut Scope<'_>, place: &Where) -> Result<With<ScalesStep, f32>> {
        Ok(Next::Continue.with(if let Where::Jump = place { f32::INFINITY } else { 1.0 }))
    }

    async fn forget(
        &self,
        _: &mut Scope<'_>,
        _: &Where,
        lines: &BTreeMap<String, Vec<Line>>,
        _: &Failure,
    ) -> Result<()> {
        assert_eq!(lines["lines"][1], Line { price: -0.0, rebate: Some(0.5) });
        Ok(())
    }

    async fn forget_one(&self, _: &mut Scope<'_>, _: &Where, from_divide: &f64, _: &Failure) -> Result<()> {
        assert_eq!(*from_divide, f64::MAX);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn float_that_is_not_finite_fails_the_step_and_everything_is_undone() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Scales,)).await?;
    let cases = [
        (Where::Value, "what step `divide` of saga `scales` returned cannot be stored: it is NaN"),
        (
            Where::Nested,
            "what step `weigh` of saga `scales` returned cannot be stored: it[entry 0][1].rebate is NaN",
        ),
        (Where::Jump, "what step `finish` of saga `scales` returned cannot be stored: it is inf"),
        (
            Where::Launch,
            "a message for topic `weight`, from step `weigh` of saga `scales`, cannot be stored: it is NaN",
        ),
        (Where::Reply, "the reply of step `weigh` of saga `scales` cannot be stored: it is inf"),
        (
            Where::Context,
            "the value for the key `Rate` of the context, from step `weigh` of saga `scales`, cannot be stored: it is -inf",
        ),
        (
            Where::ContextOfALaunch,
            "the value for the key `Rate` of the context, from step `weigh` of saga `scales`, cannot be stored: it is NaN",
        ),
    ];
    for (place, text) in cases {
        let Outcome::RolledBack(failure) = scoop.launch(place).await?.ends().await? else {
            panic!("it was to fail: {text}");
        };
        assert_eq!(failure.message, format!("{text}, which JSON cannot express"));
    }
    assert_eq!(scoop.launch(Where::Nowhere).await?.ends().await?, Outcome::Committed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_client_that_is_not_finite_is_refused_and_not_launched() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.start((Scales,)).await?;
    let Err(refused) = scoop.launch(Weight(f64::NAN)).await else { panic!("it was launched") };
    assert!(refused.is_invalid(), "{refused:?}");
    assert_eq!(refused.to_string(), "a message for topic `weight` cannot be written as JSON");
    let cause = std::error::Error::source(&refused).expect("it has a cause").to_string();
    assert_eq!(cause, "it is NaN, which JSON cannot express");
    assert_eq!(db.history().await.rows().len(), 0);
    Ok(())
}
