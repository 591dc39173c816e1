"""Carries out intents on processes; decides nothing."""
