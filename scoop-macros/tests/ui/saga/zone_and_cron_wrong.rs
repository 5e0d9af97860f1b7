use scoop::prelude::*;

#[derive(Default)]
struct Report;

#[saga(cron = "61 3 * * *", zone = "the moon")]
#[subscribes(Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
        Ok(())
    }
}

fn main() {}
