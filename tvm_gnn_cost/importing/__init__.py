"""Imports users' networks into Relax, with static shapes."""
