"""Asks one outside source each, and translates its errors; decides nothing."""
