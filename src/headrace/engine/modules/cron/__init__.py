"""Commands that run at set times, at intervals and after events, as `flux cron` sets them up."""
