use scoop::prelude::*;

#[derive(Default)]
struct AReportOfEverythingThatHappenedSinceTheLastSuchReport2026;

#[saga(every = "1h")]
#[subscribes(Tick)]
impl AReportOfEverythingThatHappenedSinceTheLastSuchReport2026 {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
