"""Conversations that return after others have taken their pages"""
